-- Deferred deletions: unreachable rows of a deleted collection with its documents, or of one place in it, removed in small
-- batches. place is empty for the whole collection.
CREATE TABLE deferred_deletions (
    tenant TEXT NOT NULL,
    collection  TEXT NOT NULL,
    place  TEXT NOT NULL,
    PRIMARY KEY (tenant, collection, place)
) {table};
