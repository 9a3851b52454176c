-- Knowledge domains, their documents, and the indexing state of each document.

-- Plans of tenants; a tenant without a row has the default plan.
CREATE TABLE tenant_plans (
    tenant TEXT NOT NULL PRIMARY KEY,
    plan   TEXT NOT NULL,
    since  {bigint} NOT NULL
) {table};

-- A domain with its ACL: readers, their clearance, and writers. During a reindex, reindex_after is the cursor, and afresh
-- is set if embeddings are recomputed too.
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

-- A document. version counts changes of content and of chunking; searches find the indexed version. Several versions may
-- share one content. Only the lease holder indexes; a lease without a holder is a backoff. The chunking options of the version
-- in progress are stored, to detect that they changed meanwhile. starts counts attempts without progress, so that a document
-- that crashes the process is given up. unfinished is 1 while there are chunks of versions that searches must not find. The
-- metadata of the indexed version is stored next to that of the last put; text_bytes is the length of its text.
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
    cut             TEXT NOT NULL,
    queued_at       {bigint} NOT NULL,
    holder          TEXT,
    lease_until     {bigint} NOT NULL,
    starts          {bigint} NOT NULL DEFAULT 0,
    unfinished      {bigint} NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, domain, document_id)
) {table};

CREATE INDEX documents_by_state ON documents (tenant, domain, state, document_id);
CREATE INDEX documents_pending ON documents (tenant, queued_at) WHERE state = 'pending';
CREATE INDEX documents_unfinished ON documents (tenant, domain) WHERE unfinished = 1;

-- Document content, compressed, and the extracted text if it differs from the content.
CREATE TABLE document_contents (
    tenant      TEXT NOT NULL,
    domain      TEXT NOT NULL,
    document_id TEXT NOT NULL,
    version     {bigint} NOT NULL,
    content     {blob} NOT NULL,
    text        {blob},
    PRIMARY KEY (tenant, domain, document_id, version)
) {rows_table};
