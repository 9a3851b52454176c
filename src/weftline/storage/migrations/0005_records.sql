-- Stored records, and the event log as the index of all records.

-- Correlation ids of an event; the rarely queried ones as one JSON object.
ALTER TABLE events ADD COLUMN turn_id TEXT;
ALTER TABLE events ADD COLUMN task_id TEXT;
ALTER TABLE events ADD COLUMN tool_call_id TEXT;
ALTER TABLE events ADD COLUMN runtime TEXT;
-- Source and id of an imported event, as JSON.
ALTER TABLE events ADD COLUMN origin TEXT;

-- The participant name of a message's sender at that time.
ALTER TABLE messages ADD COLUMN author TEXT;

CREATE INDEX events_by_turn ON events (tenant, turn_id, seq) WHERE turn_id IS NOT NULL;
CREATE INDEX events_by_task ON events (tenant, task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX events_by_tool_call ON events (tenant, tool_call_id, seq) WHERE tool_call_id IS NOT NULL;
CREATE INDEX events_by_actor ON events (tenant, actor, seq);
CREATE INDEX events_by_subject ON events (tenant, subject, seq);
CREATE INDEX events_by_time ON events (tenant, at, seq);

-- Records that are not derived from other tables. Those of a session are deleted with it; others have an empty session_id.
-- status: lifecycle of an envelope or of missing context. seq: the last event about the record.
-- recorded_by is a participant name, which several principals may share; principal_id is set if it is a local principal.
CREATE TABLE records (
    tenant       TEXT NOT NULL,
    type         TEXT NOT NULL,
    record_id    TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    status       TEXT,
    recorded_by  TEXT NOT NULL,
    principal_id TEXT,
    recorded_at  {bigint} NOT NULL,
    changed_at   {bigint} NOT NULL,
    seq          {bigint} NOT NULL,
    readable_by  TEXT,
    body         {blob} NOT NULL,
    PRIMARY KEY (tenant, type, record_id)
) {table};

CREATE INDEX records_by_session ON records (tenant, session_id, seq);
CREATE INDEX missing_context_open ON records (tenant, session_id, recorded_at)
    WHERE type = 'missing_context' AND status <> 'resolved';

-- Which records reference which items.
CREATE TABLE record_items (
    tenant    TEXT NOT NULL,
    item_id   TEXT NOT NULL,
    type      TEXT NOT NULL,
    record_id TEXT NOT NULL,
    PRIMARY KEY (tenant, item_id, type, record_id)
) {table};

CREATE INDEX record_items_by_record ON record_items (tenant, type, record_id);

-- Content of stored items that is too long for the record. It is found by the item id only: a digest alone gives no access.
CREATE TABLE record_contents (
    tenant     TEXT NOT NULL,
    session_id TEXT NOT NULL,
    item_id    TEXT NOT NULL,
    content    {blob} NOT NULL,
    PRIMARY KEY (tenant, session_id, item_id)
) {table};

-- Redactions: content that records and exports no longer show, although it is stored. The replacement is shown instead.
-- imported_policies: policy refs, as JSON, of an item that was imported in redacted form.
CREATE TABLE redactions (
    tenant      TEXT NOT NULL,
    type        TEXT NOT NULL,
    record_id   TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    state       TEXT NOT NULL,
    method      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    redacted_by TEXT NOT NULL,
    redacted_at {bigint} NOT NULL,
    replacement {blob},
    imported_policies TEXT,
    PRIMARY KEY (tenant, type, record_id)
) {table};

CREATE INDEX redactions_by_session ON redactions (tenant, session_id);

-- Export policies of tenants: what an export may contain, in which form, and who may use the policy.
CREATE TABLE export_policies (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    definition TEXT NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, name)
) {table};
