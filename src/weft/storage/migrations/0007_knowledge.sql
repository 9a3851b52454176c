-- What can be searched by meaning and by words: chunks of documents, messages, boards and memory, with their vectors.

{postgres_only}
CREATE EXTENSION IF NOT EXISTS vector;
{end_postgres_only}

-- A collection is what is searched together: one for each domain of knowledge, one for all sessions, one for all memory.
-- The number counts everything that happened to it: each chunk and each removal takes the next. Whoever changes a collection
-- holds its row until the end, so numbers become visible in order. The birth is another one for a collection that was taken
-- away and put up again, or restored: numbers of one birth mean nothing in another. Removals and returns up to the number
-- forgotten are not there any more: a copy of the collection that has not seen them is of no use.
CREATE TABLE collections (
    tenant    TEXT NOT NULL,
    collection     TEXT NOT NULL,
    birth     {bigint} NOT NULL,
    number    {bigint} NOT NULL,
    chunks    {bigint} NOT NULL,
    forgotten {bigint} NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, collection)
) {table};

-- One chunk: characters from start_at to end_at of a version of an item. An item is a document, message, key or memory;
-- its place is the domain, session or agent it belongs to. The scope says who in that place may see it, as patterns in
-- JSON, empty for all. Terms are its words as they are compared. The text is what a vector is made of, with the heading
-- before it; what a caller is shown of messages, boards and memory comes from where it lives.
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

-- The vectors of chunks, two bytes a dimension, for each model that is in use.
CREATE TABLE chunk_vectors (
    tenant TEXT NOT NULL,
    collection  TEXT NOT NULL,
    model  TEXT NOT NULL,
    number {bigint} NOT NULL,
    vector {vector} NOT NULL,
    PRIMARY KEY (tenant, collection, model, number)
) {rows_table_by_tenant};

-- Chunks that are gone, under the number that their going took: what a copy of a collection must forget.
CREATE TABLE chunk_removals (
    tenant  TEXT NOT NULL,
    collection   TEXT NOT NULL,
    number  {bigint} NOT NULL,
    removed {bigint} NOT NULL,
    PRIMARY KEY (tenant, collection, number)
) {table};

-- Chunks from first to last that got vectors of a further model, under the number that this took: what a copy of a collection
-- must read again.
CREATE TABLE chunk_returns (
    tenant TEXT NOT NULL,
    collection  TEXT NOT NULL,
    model  TEXT NOT NULL,
    number {bigint} NOT NULL,
    first  {bigint} NOT NULL,
    last   {bigint} NOT NULL,
    PRIMARY KEY (tenant, collection, model, number)
) {table};

-- Vectors of texts that were embedded before, by what the text and the model are. The kind tells what for: a passage of
-- something that can be found, or what a caller asked to have embedded, which goes first.
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
