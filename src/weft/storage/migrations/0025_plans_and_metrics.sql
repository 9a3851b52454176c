-- The agent for whom a named snapshot counts; automatic ones count for none.
ALTER TABLE tags ADD COLUMN owner TEXT;

CREATE INDEX tags_by_owner ON tags (tenant, owner) WHERE owner IS NOT NULL;
