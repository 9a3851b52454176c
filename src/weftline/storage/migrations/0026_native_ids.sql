-- Ids of other systems: the trace of a call; and its MCP session, or the id of the model response that an event reports.
ALTER TABLE events ADD COLUMN trace_id TEXT;
ALTER TABLE events ADD COLUMN native_id TEXT;
CREATE INDEX events_by_trace ON events (tenant, trace_id, seq) WHERE trace_id IS NOT NULL;
CREATE INDEX events_by_native ON events (tenant, native_id, seq) WHERE native_id IS NOT NULL;
