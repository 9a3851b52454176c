-- Which layers and definitions a tenant has, each with its newest version, as JSON; sealed. Every tenant has all parts.
CREATE TABLE signed_lists (
    tenant   TEXT NOT NULL,
    part     {bigint} NOT NULL,
    versions TEXT NOT NULL,
    seal     {blob} NOT NULL,
    PRIMARY KEY (tenant, part)
) {table};

-- A seal over the versions that a session has pinned: nobody replaces or empties them in the database.
ALTER TABLE layer_pins ADD COLUMN seal {blob};
