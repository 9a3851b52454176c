-- What a tenant's agents know from documents: domains, the documents in them, and how far each is on its way to search.

-- How much a tenant may have, where it was agreed; tenants without a row have what the installation gives everyone.
CREATE TABLE tenant_plans (
    tenant TEXT NOT NULL PRIMARY KEY,
    plan   TEXT NOT NULL,
    since  {bigint} NOT NULL
) {table};

-- Who may look into a domain: those its patterns name, cleared as high as it asks; who of them may write. While its documents are being cut
-- anew, reindex_after is the last one that was looked at; afresh if they are embedded anew as well.
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

-- A document. Its version counts what was put and how it was cut; the indexed one is the one that searches find.
-- Several versions may be cut from the same content. Only the holder indexes, until its lease ends; a lease nobody holds
-- is a pause. How the version at work was cut is kept, so that whoever goes on with it can tell whether it still fits.
-- Starts counts how often it was taken up since it got any further, so that what ends the process does not for ever.
-- Unfinished is 1 while there are chunks of versions that searches must not find. What the indexed version was said to be
-- is kept beside what was put last, so that searches judge and show what they find; text_bytes is how long its text is.
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

-- What was put, packed; and its text where that is not the content itself.
CREATE TABLE document_contents (
    tenant      TEXT NOT NULL,
    domain      TEXT NOT NULL,
    document_id TEXT NOT NULL,
    version     {bigint} NOT NULL,
    content     {blob} NOT NULL,
    text        {blob},
    PRIMARY KEY (tenant, domain, document_id, version)
) {rows_table};
