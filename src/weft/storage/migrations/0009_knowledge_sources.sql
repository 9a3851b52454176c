-- Where the documents of a domain come from by themselves: folders, addresses, and whoever calls a hook.

-- A source is brought up to date when it is due or somebody asks for it (asked: 1, with everything read anew: 2). What
-- it looked like then is in seen. A hook is known by the digest of its token; hooked_at is the time of the last signed
-- call, before which none is taken.
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
    hooked_at     {bigint} NOT NULL,
    seen          TEXT NOT NULL,
    done          TEXT NOT NULL,
    PRIMARY KEY (tenant, source_id)
) {table};

CREATE INDEX knowledge_sources_by_domain ON knowledge_sources (tenant, domain, created_at, source_id);

-- Which documents a source has put, and what of their files tells whether they have changed since.
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
