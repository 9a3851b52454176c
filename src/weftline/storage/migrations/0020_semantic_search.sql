-- Whether a chunk gets a vector; 0: it is found by its words only.
ALTER TABLE chunks ADD COLUMN semantic {bigint} NOT NULL DEFAULT 1;

-- Whether the tenant's content is embedded and searched by meaning.
ALTER TABLE tenants ADD COLUMN semantic_search {bigint} NOT NULL DEFAULT 1;
