-- Records of what the engine did: the event log as their index, and what no other table says.

-- What an event is part of, by the ids it has where the call came from; the less asked-for ones together, as JSON.
ALTER TABLE events ADD COLUMN turn_id TEXT;
ALTER TABLE events ADD COLUMN task_id TEXT;
ALTER TABLE events ADD COLUMN tool_call_id TEXT;
ALTER TABLE events ADD COLUMN runtime TEXT;
-- Of an event that came with an import: the source and the id it had there, as JSON.
ALTER TABLE events ADD COLUMN origin TEXT;

-- The name that others see on the work of a message's sender, as it was then.
ALTER TABLE messages ADD COLUMN author TEXT;

CREATE INDEX events_by_turn ON events (tenant, turn_id, seq) WHERE turn_id IS NOT NULL;
CREATE INDEX events_by_task ON events (tenant, task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX events_by_tool_call ON events (tenant, tool_call_id, seq) WHERE tool_call_id IS NOT NULL;
CREATE INDEX events_by_actor ON events (tenant, actor, seq);
CREATE INDEX events_by_subject ON events (tenant, subject, seq);
CREATE INDEX events_by_time ON events (tenant, at, seq);

-- Records that nothing else is the source of. Those of a session go when it goes; others have the empty session_id.
-- A status is an envelope's lifecycle or that of missing context; seq is the event that last told of the record.
-- Several may go by the name in recorded_by; principal_id is who it was, if that is somebody of this installation.
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

-- Which records name which items.
CREATE TABLE record_items (
    tenant    TEXT NOT NULL,
    item_id   TEXT NOT NULL,
    type      TEXT NOT NULL,
    record_id TEXT NOT NULL,
    PRIMARY KEY (tenant, item_id, type, record_id)
) {table};

CREATE INDEX record_items_by_record ON record_items (tenant, type, record_id);

-- What an item that is a record says, where that is too long for the record itself. It is found by the item alone:
-- whoever knows a digest knows nothing more by it.
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

-- What may leave, in which form and by whose hand: rules that a tenant has set.
CREATE TABLE export_policies (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    definition TEXT NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, name)
) {table};
