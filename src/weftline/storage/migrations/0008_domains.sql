-- Knowledge: domains, their documents, and the indexing queue.

-- Plan of a tenant; without a row the default plan applies.
CREATE TABLE tenant_plans (
    tenant TEXT NOT NULL PRIMARY KEY,
    plan   TEXT NOT NULL,
    since  {bigint} NOT NULL
) {table};

-- agents and clearance: who can see a domain; writers: who of them may write. reindex_after is the cursor of a running
-- reindex; reindex_afresh: without cached vectors.
CREATE TABLE domains (
    tenant        TEXT NOT NULL,
    domain        TEXT NOT NULL,
    description   TEXT NOT NULL,
    clearance     {bigint} NOT NULL,
    agents        TEXT,
    writers       TEXT,
    chunking      TEXT NOT NULL,
    importance    {real} NOT NULL,
    created_by    TEXT NOT NULL,
    created_at    {bigint} NOT NULL,
    updated_at    {bigint} NOT NULL,
    documents     {bigint} NOT NULL,
    bytes         {bigint} NOT NULL,
    reindex_after TEXT,
    reindex_afresh {bigint} NOT NULL,
    PRIMARY KEY (tenant, domain)
) {table};

-- Documents. version increases with every put and reindex; searches find indexed_version. Several versions may have the
-- same content. Only the holder of the lease indexes; a lease without a holder is a backoff. layout_hash identifies the
-- chunks of the version being indexed, so that another process can resume. attempts counts leases without progress, so
-- that a document that crashes the process fails in the end. incomplete: there are chunks of unfinished versions.
-- The indexed_ columns describe the indexed version, the others the latest one. text_bytes is the length of the text.
CREATE TABLE documents (
    tenant          TEXT NOT NULL,
    domain          TEXT NOT NULL,
    document_id     TEXT NOT NULL,
    version         {bigint} NOT NULL,
    content_version {bigint} NOT NULL,
    state           TEXT NOT NULL,
    digest          TEXT NOT NULL,
    fingerprint     TEXT NOT NULL,
    bytes           {bigint} NOT NULL,
    media_type      TEXT NOT NULL,
    title           TEXT NOT NULL,
    metadata        TEXT NOT NULL,
    pinned          {bigint} NOT NULL,
    importance      {real},
    timestamp       {bigint} NOT NULL,
    added_by        TEXT NOT NULL,
    created_at      {bigint} NOT NULL,
    updated_at      {bigint} NOT NULL,
    indexed_version {bigint} NOT NULL,
    indexed_content {bigint} NOT NULL,
    indexed_at      {bigint},
    indexed_title   TEXT NOT NULL DEFAULT '',
    indexed_type    TEXT NOT NULL DEFAULT '',
    indexed_metadata TEXT,
    text_bytes      {bigint} NOT NULL DEFAULT 0,
    chunks          {bigint} NOT NULL,
    chunks_done     {bigint} NOT NULL,
    chunks_total    {bigint},
    error           TEXT,
    layout_hash     TEXT NOT NULL,
    queued_at       {bigint} NOT NULL,
    holder          TEXT,
    lease_until     {bigint} NOT NULL,
    attempts        {bigint} NOT NULL DEFAULT 0,
    incomplete      {bigint} NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, domain, document_id)
) {table};

CREATE INDEX documents_by_state ON documents (tenant, domain, state, document_id);
CREATE INDEX documents_pending ON documents (tenant, queued_at) WHERE state = 'pending';
CREATE INDEX documents_incomplete ON documents (tenant, domain) WHERE incomplete = 1;

-- Compressed content of a version, and its text if that differs.
CREATE TABLE document_contents (
    tenant      TEXT NOT NULL,
    domain      TEXT NOT NULL,
    document_id TEXT NOT NULL,
    version     {bigint} NOT NULL,
    content     {blob} NOT NULL,
    text        {blob},
    PRIMARY KEY (tenant, domain, document_id, version)
) {rows_table};
