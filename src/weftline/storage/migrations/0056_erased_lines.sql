-- The highest version of a key in an erased line. Keys of a new line of the same name count on from there, so that a
-- version which somebody has read is never that of another value.
CREATE TABLE erased_lines (
    tenant       TEXT NOT NULL,
    line_id      TEXT NOT NULL,
    last_version {bigint} NOT NULL,
    PRIMARY KEY (tenant, line_id)
) {table};
