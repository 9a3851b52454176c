-- What was deleted and still has rows that nothing finds any more, which go a few at a time: those of a whole collection, with
-- the documents that stood on it, or of one place in a collection. The place is empty for the whole collection.
CREATE TABLE clearings (
    tenant TEXT NOT NULL,
    collection  TEXT NOT NULL,
    place  TEXT NOT NULL,
    PRIMARY KEY (tenant, collection, place)
) {table};
