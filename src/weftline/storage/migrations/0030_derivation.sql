-- Documents that are held for review, what was declared to be derived from what, and the items of each prompt.

-- trust: label of the indexed version as JSON. quarantine: why the latest version is held, as JSON. released: the
-- fingerprint of content and attributes that was released from quarantine, and by whom.
ALTER TABLE documents ADD COLUMN trust TEXT;
ALTER TABLE documents ADD COLUMN quarantine TEXT;
ALTER TABLE documents ADD COLUMN released TEXT;
ALTER TABLE documents ADD COLUMN released_by TEXT;

-- Items of which some version names another item as its source. Both without version; the labels have the versions.
-- line_id: the line of the item, or message:SESSION.
CREATE TABLE derivations (
    tenant  TEXT NOT NULL,
    source  TEXT NOT NULL,
    item    TEXT NOT NULL,
    line_id TEXT NOT NULL,
    at      {bigint} NOT NULL,
    PRIMARY KEY (tenant, source, item)
) {table};

CREATE INDEX derivations_by_line ON derivations (tenant, line_id);

-- Hashes of the items in the prompt, eight bytes each.
ALTER TABLE receipts ADD COLUMN items {blob};
