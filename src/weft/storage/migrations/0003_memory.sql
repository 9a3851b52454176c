-- What agents keep for themselves: globally, or in a session.
-- A global entry has the empty session_id. Keys are bytes: both databases order those alike, whatever their collation,
-- so that a prefix is a range.

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

-- What each agent's entries add up to, so that a limit costs one row; locked by whoever changes them.
CREATE TABLE memory_owners (
    tenant       TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    weight       {bigint} NOT NULL,
    expired      {bigint} NOT NULL,
    PRIMARY KEY (tenant, principal_id)
) {table};

-- Who keeps a memory of a session: what must go when the session does.
CREATE TABLE session_memories (
    tenant       TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, principal_id)
) {table};

-- Values that could not be judged while someone else was at work on them: looked at again later.
CREATE TABLE doubtful_blobs (
    tenant TEXT NOT NULL,
    hash   {blob} NOT NULL,
    PRIMARY KEY (tenant, hash)
) {table};
