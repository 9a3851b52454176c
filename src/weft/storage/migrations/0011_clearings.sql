-- What was deleted and still has rows that nothing finds any more, which go a few at a time: those of a whole shelf, with
-- the documents that stood on it, or of one place on a shelf. The place is empty for the whole shelf.
CREATE TABLE clearings (
    tenant TEXT NOT NULL,
    shelf  TEXT NOT NULL,
    place  TEXT NOT NULL,
    PRIMARY KEY (tenant, shelf, place)
) {table};
