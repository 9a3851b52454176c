-- Where the documents of a domain come from by themselves: folders, addresses, and whoever calls a hook.

-- A source is brought up to date when it is due or somebody asks for it (asked: 1, with everything read anew: 2). What
-- it looked like then is in seen. The error is that of the last of so many failures in a row. A hook is known by the
-- digest of its token.
CREATE TABLE knowledge_sources (
    tenant        TEXT NOT NULL,
    source_id     TEXT NOT NULL,
    domain        TEXT NOT NULL,
    kind          TEXT NOT NULL,
    location      TEXT NOT NULL,
    prefix        TEXT NOT NULL,
    include       TEXT NOT NULL,
    exclude       TEXT NOT NULL,
    every_seconds {bigint},
    watch         {bigint} NOT NULL,
    secret        TEXT NOT NULL,
    token_digest  TEXT NOT NULL,
    principal_id  TEXT NOT NULL,
    created_at    {bigint} NOT NULL,
    enabled       {bigint} NOT NULL,
    error         TEXT,
    asked         {bigint} NOT NULL,
    due_at        {bigint},
    synced_at     {bigint},
    failures      {bigint} NOT NULL,
    seen          TEXT NOT NULL,
    done          TEXT NOT NULL,
    PRIMARY KEY (tenant, source_id)
) {table};

CREATE INDEX knowledge_sources_by_domain ON knowledge_sources (tenant, domain, created_at, source_id);
-- Begins with what all of them share, so that SQLite prefers it to reading every source by the primary key.
CREATE INDEX knowledge_sources_to_look_at ON knowledge_sources (enabled, tenant, source_id)
    WHERE enabled = 1 AND kind <> 'hook' AND (watch = 1 OR asked > 0 OR due_at IS NOT NULL);

-- Which documents a source has put, and what of their files tells whether they have changed since. The digest is that of
-- what was last put, empty if nothing was: a document that is otherwise is no longer the source's.
CREATE TABLE knowledge_source_files (
    tenant      TEXT NOT NULL,
    source_id   TEXT NOT NULL,
    document_id TEXT NOT NULL,
    size        {bigint} NOT NULL,
    changed_at  {bigint} NOT NULL,
    digest      TEXT NOT NULL,
    error       TEXT,
    PRIMARY KEY (tenant, source_id, document_id)
) {table};

-- Signed calls to a hook that were taken, and what they were answered: for as long as they could be played back.
CREATE TABLE knowledge_hook_calls (
    tenant    TEXT NOT NULL,
    source_id TEXT NOT NULL,
    call_id   TEXT NOT NULL,
    signed_at {bigint} NOT NULL,
    answer    TEXT NOT NULL,
    PRIMARY KEY (tenant, source_id, call_id)
) {table};

CREATE INDEX knowledge_hook_calls_by_time ON knowledge_hook_calls (tenant, source_id, signed_at);
