-- Private memory of agents: global, or of a session.
-- A global entry has an empty session_id. Keys are bytes, which both databases sort alike whatever the collation, so that a
-- prefix is a range.

CREATE TABLE memory_entries (
    tenant       TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    key          {blob} NOT NULL,
    incarnation         {bigint} NOT NULL,
    version      {bigint} NOT NULL,
    blob_hash    {blob} NOT NULL,
    size         {bigint} NOT NULL,
    weight       {bigint} NOT NULL,
    metadata     TEXT,
    created_at   {bigint} NOT NULL,
    updated_at   {bigint} NOT NULL,
    expires_at   {bigint},
    PRIMARY KEY (tenant, principal_id, session_id, key)
) {table};

CREATE INDEX memory_entries_by_expiry ON memory_entries (tenant, principal_id, session_id, expires_at)
    WHERE expires_at IS NOT NULL;
CREATE INDEX memory_entries_by_owner ON memory_entries (tenant, principal_id, expires_at) WHERE expires_at IS NOT NULL;

-- Memory usage of each agent, so that the limit check reads one row; writers lock it.
CREATE TABLE memory_owners (
    tenant       TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    weight       {bigint} NOT NULL,
    expired      {bigint} NOT NULL,
    PRIMARY KEY (tenant, principal_id)
) {table};

-- Which agents have memory of a session, to delete it with the session.
CREATE TABLE session_memories (
    tenant       TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, principal_id)
) {table};

-- Blobs whose garbage collection was skipped because of a concurrent writer; checked again later.
CREATE TABLE doubtful_blobs (
    tenant TEXT NOT NULL,
    hash   {blob} NOT NULL,
    PRIMARY KEY (tenant, hash)
) {table};
