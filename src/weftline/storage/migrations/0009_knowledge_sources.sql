-- Sources of the documents of a domain: folders, URLs and hooks.

-- A source is synced when it is due or a sync is requested (requested: 1, a full sync: 2). validator is the state of the
-- location at the last sync. error is that of the last failure; failures counts consecutive ones. A hook is identified by
-- the digest of its token.
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
    requested     {bigint} NOT NULL,
    due_at        {bigint},
    synced_at     {bigint},
    failures      {bigint} NOT NULL,
    validator     TEXT NOT NULL,
    last_sync     TEXT NOT NULL,
    PRIMARY KEY (tenant, source_id)
) {table};

CREATE INDEX knowledge_sources_by_domain ON knowledge_sources (tenant, domain, created_at, source_id);
-- Starts with a constant column, so that SQLite prefers it to a scan by the primary key.
CREATE INDEX knowledge_sources_to_look_at ON knowledge_sources (enabled, tenant, source_id)
    WHERE enabled = 1 AND kind <> 'hook' AND (watch = 1 OR requested > 0 OR due_at IS NOT NULL);

-- Documents of a source, with what detects a change of their files. digest: of the content last put, empty if none; a
-- document with another content is no longer managed by the source.
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

-- Accepted signed hook calls and their answers, kept while they could be replayed.
CREATE TABLE knowledge_hook_calls (
    tenant    TEXT NOT NULL,
    source_id TEXT NOT NULL,
    call_id   TEXT NOT NULL,
    signed_at {bigint} NOT NULL,
    answer    TEXT NOT NULL,
    PRIMARY KEY (tenant, source_id, call_id)
) {table};

CREATE INDEX knowledge_hook_calls_by_time ON knowledge_hook_calls (tenant, source_id, signed_at);
