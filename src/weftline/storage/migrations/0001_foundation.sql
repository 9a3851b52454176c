-- Tenants, principals, sessions, history, the board, events and the audit log.
-- Every primary key starts with the tenant, so that PostgreSQL can be partitioned or sharded by it.
-- Times are microseconds since 1970 (UTC); JSON is stored as text.

CREATE TABLE tenants (
    tenant       TEXT NOT NULL PRIMARY KEY,
    created_at   {bigint} NOT NULL,
    event_seq    {bigint} NOT NULL DEFAULT 0,
    access_epoch {bigint} NOT NULL DEFAULT 0
) {table};

CREATE TABLE principals (
    tenant       TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    kind         TEXT NOT NULL,
    agent_type   TEXT NOT NULL,
    parent_id    TEXT,
    clearance    {bigint} NOT NULL,
    permissions  TEXT NOT NULL,
    created_at   {bigint} NOT NULL,
    disabled_at  {bigint},
    PRIMARY KEY (tenant, principal_id)
) {table};

CREATE TABLE api_keys (
    tenant       TEXT NOT NULL,
    key_id       TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    secret_hash  {blob} NOT NULL,
    created_at   {bigint} NOT NULL,
    expires_at   {bigint},
    revoked_at   {bigint},
    PRIMARY KEY (tenant, key_id)
) {table};

CREATE INDEX api_keys_by_principal ON api_keys (tenant, principal_id);

CREATE TABLE signing_keys (
    tenant     TEXT NOT NULL,
    kid        TEXT NOT NULL,
    secret     {blob} NOT NULL,
    created_at {bigint} NOT NULL,
    retired_at {bigint},
    PRIMARY KEY (tenant, kid)
) {table};

CREATE TABLE access_tokens (
    tenant       TEXT NOT NULL,
    token_id     TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    key_id       TEXT,
    permissions  TEXT NOT NULL,
    proven_at    {bigint} NOT NULL,
    expires_at   {bigint} NOT NULL,
    revoked_at   {bigint},
    PRIMARY KEY (tenant, token_id)
) {table};

CREATE INDEX access_tokens_by_principal ON access_tokens (tenant, principal_id);

CREATE TABLE audit_log (
    tenant       TEXT NOT NULL,
    audit_id     TEXT NOT NULL,
    at           {bigint} NOT NULL,
    actor        TEXT NOT NULL,
    principal_id TEXT,
    action       TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    target       TEXT NOT NULL,
    detail       TEXT NOT NULL,
    PRIMARY KEY (tenant, audit_id)
) {table};

CREATE TABLE sessions (
    tenant      TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    purpose     TEXT NOT NULL,
    metadata    TEXT NOT NULL,
    config      TEXT NOT NULL,
    created_by  TEXT NOT NULL,
    created_at  {bigint} NOT NULL,
    updated_at  {bigint} NOT NULL,
    archived_at {bigint},
    PRIMARY KEY (tenant, session_id)
) {table};

CREATE INDEX sessions_by_creation ON sessions (tenant, created_at, session_id);

CREATE TABLE blobs (
    tenant  TEXT NOT NULL,
    hash    {blob} NOT NULL,
    content {blob} NOT NULL,
    PRIMARY KEY (tenant, hash)
) {table};

CREATE TABLE lines (
    tenant         TEXT NOT NULL,
    line_id        TEXT NOT NULL,
    seq            {bigint} NOT NULL,
    head           {blob} NOT NULL,
    weight         {bigint} NOT NULL,
    next_expiry_at {bigint},
    PRIMARY KEY (tenant, line_id)
) {table};

CREATE INDEX lines_by_expiry ON lines (next_expiry_at) WHERE next_expiry_at IS NOT NULL;

CREATE TABLE commits (
    tenant       TEXT NOT NULL,
    line_id      TEXT NOT NULL,
    seq          {bigint} NOT NULL,
    hash         {blob} NOT NULL,
    author       TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    committed_at {bigint} NOT NULL,
    reason       TEXT NOT NULL,
    step         TEXT,
    PRIMARY KEY (tenant, line_id, seq)
) {table};

CREATE TABLE changes (
    tenant    TEXT NOT NULL,
    line_id   TEXT NOT NULL,
    key       TEXT NOT NULL,
    seq       {bigint} NOT NULL,
    incarnation      {bigint} NOT NULL,
    version   {bigint} NOT NULL,
    act       TEXT NOT NULL,
    blob_hash {blob},
    pruned    {bigint} NOT NULL DEFAULT 0,
    meta      TEXT NOT NULL,
    PRIMARY KEY (tenant, line_id, key, seq)
) {table};

CREATE INDEX changes_by_seq ON changes (tenant, line_id, seq);
-- Partial, so that SQLite prefers it to scanning a tenant by the primary key.
CREATE INDEX changes_by_blob ON changes (tenant, blob_hash) WHERE pruned = 0;

CREATE TABLE tags (
    tenant     TEXT NOT NULL,
    line_id    TEXT NOT NULL,
    label      TEXT NOT NULL,
    seq        {bigint} NOT NULL,
    created_by TEXT NOT NULL,
    created_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, line_id, label)
) {table};

CREATE TABLE entries (
    tenant       TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    key          TEXT NOT NULL,
    incarnation         {bigint} NOT NULL,
    version      {bigint} NOT NULL,
    blob_hash    {blob} NOT NULL,
    tokens       {bigint} NOT NULL,
    written_by   TEXT NOT NULL,
    written_at   {bigint} NOT NULL,
    expires_at   {bigint},
    readable_by  TEXT,
    writable_by  TEXT,
    reads        {bigint} NOT NULL DEFAULT 0,
    last_read_at {bigint},
    PRIMARY KEY (tenant, session_id, key)
) {table};

CREATE TABLE conventions (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    definition TEXT NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, name)
) {table};

CREATE TABLE events (
    tenant       TEXT NOT NULL,
    seq          {bigint} NOT NULL,
    session_id   TEXT,
    type         TEXT NOT NULL,
    subject      TEXT NOT NULL,
    actor        TEXT NOT NULL,
    at           {bigint} NOT NULL,
    participants TEXT,
    readable_by  TEXT,
    data         TEXT NOT NULL,
    PRIMARY KEY (tenant, seq)
) {table};

CREATE INDEX events_by_session ON events (tenant, session_id, seq);
