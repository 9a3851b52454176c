-- Items that are part of every prompt. session_id: the session that an item is deleted with; empty if none.
CREATE TABLE pinned_items (
    tenant     TEXT NOT NULL,
    collection TEXT NOT NULL,
    place      TEXT NOT NULL,
    item       TEXT NOT NULL,
    session_id TEXT NOT NULL,
    tokens     {bigint} NOT NULL,
    pinned_by  TEXT NOT NULL,
    pinned_at  {bigint} NOT NULL,
    PRIMARY KEY (tenant, collection, place, item)
) {table};

CREATE INDEX pinned_items_by_session ON pinned_items (tenant, session_id);
CREATE INDEX pinned_documents ON documents (tenant, domain) WHERE pinned = 1;
