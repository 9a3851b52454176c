-- The search index: chunks of documents, messages, boards and memory, with their vectors.

{postgres_only}
CREATE EXTENSION IF NOT EXISTS vector;
{end_postgres_only}

-- A collection is searched as one unit: one for each knowledge domain, one for all sessions, one for all memory.
-- number is the change counter: each new chunk and each removal takes the next value. Writers lock the row until their commit,
-- so numbers become visible in order. generation changes when a collection is deleted and created again, or
-- restored, and numbers of different generations are not comparable. Removals up to pruned_up_to are deleted: a replica that
-- has not seen them must be rebuilt.
CREATE TABLE collections (
    tenant    TEXT NOT NULL,
    collection     TEXT NOT NULL,
    generation     {bigint} NOT NULL,
    number    {bigint} NOT NULL,
    chunks    {bigint} NOT NULL,
    pruned_up_to {bigint} NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, collection)
) {table};

-- One chunk: characters start_at to end_at of a version of an item (document, message, key or memory entry). place: the
-- domain, session or agent of the item. scope: the read ACL within that place as JSON patterns, empty for all. terms: the
-- analysed tokens. text: the input of the embedding, including headings; results for messages, boards and memory are read
-- from their own tables.
CREATE TABLE chunks (
    tenant     TEXT NOT NULL,
    collection      TEXT NOT NULL,
    number     {bigint} NOT NULL,
    source     TEXT NOT NULL,
    place      TEXT NOT NULL,
    scope      TEXT NOT NULL,
    item       TEXT NOT NULL,
    version    {bigint} NOT NULL,
    ordinal    {bigint} NOT NULL,
    start_at   {bigint} NOT NULL,
    end_at     {bigint} NOT NULL,
    kind       TEXT NOT NULL,
    heading    TEXT NOT NULL,
    speaker    TEXT NOT NULL,
    timestamp  {bigint} NOT NULL,
    tokens     {bigint} NOT NULL,
    importance {real} NOT NULL,
    pinned     {bigint} NOT NULL,
    metadata   TEXT NOT NULL,
    terms      TEXT NOT NULL,
    text       TEXT NOT NULL,
    digest     {blob} NOT NULL,
    PRIMARY KEY (tenant, collection, number)
) {rows_table};

CREATE INDEX chunks_by_item ON chunks (tenant, collection, place, item, version, ordinal);
CREATE INDEX chunks_by_digest ON chunks (tenant, digest);

-- Vectors of chunks, two bytes per dimension, for each model in use.
CREATE TABLE chunk_vectors (
    tenant TEXT NOT NULL,
    collection  TEXT NOT NULL,
    model  TEXT NOT NULL,
    number {bigint} NOT NULL,
    vector {vector} NOT NULL,
    PRIMARY KEY (tenant, collection, model, number)
) {rows_table_by_tenant};

-- Removed chunks, by the change number of their removal, for replicas to catch up.
CREATE TABLE chunk_removals (
    tenant  TEXT NOT NULL,
    collection   TEXT NOT NULL,
    number  {bigint} NOT NULL,
    removed {bigint} NOT NULL,
    PRIMARY KEY (tenant, collection, number)
) {table};

-- Ranges of chunks that got vectors of another model, by change number, for replicas to read again.
CREATE TABLE chunk_vector_updates (
    tenant TEXT NOT NULL,
    collection  TEXT NOT NULL,
    model  TEXT NOT NULL,
    number {bigint} NOT NULL,
    first  {bigint} NOT NULL,
    last   {bigint} NOT NULL,
    PRIMARY KEY (tenant, collection, model, number)
) {table};

-- Embedding cache, by hash of text and model. kind: a passage of an indexed item, or a text that a caller embedded; the latter
-- is evicted first.
CREATE TABLE embedding_cache (
    tenant  TEXT NOT NULL,
    model   TEXT NOT NULL,
    digest  {blob} NOT NULL,
    kind    TEXT NOT NULL,
    vector  {blob} NOT NULL,
    used_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, model, digest)
) {table};

CREATE INDEX embedding_cache_by_use ON embedding_cache (tenant, kind, used_at);

-- Which model a tenant's searches use, and which it is being moved to.
CREATE TABLE tenant_models (
    tenant   TEXT NOT NULL,
    model    TEXT NOT NULL,
    role     TEXT NOT NULL,
    since    {bigint} NOT NULL,
    PRIMARY KEY (tenant, model)
) {table};
