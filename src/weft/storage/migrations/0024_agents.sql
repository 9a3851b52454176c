-- Who disabled a principal, and with which principal above it, if not by itself: enabling that one enables it again.
ALTER TABLE principals ADD COLUMN disabled_by TEXT;
ALTER TABLE principals ADD COLUMN disabled_with TEXT;

-- Partial: enabling reads only what was disabled with a principal, and the limit counts only active agents.
CREATE INDEX principals_by_disabled_with ON principals (tenant, disabled_with) WHERE disabled_with IS NOT NULL;
CREATE INDEX principals_by_activity ON principals (tenant, kind) WHERE disabled_at IS NULL;

-- Retention of the event log: the last event that was deleted, and its time.
ALTER TABLE tenants ADD COLUMN pruned_seq {bigint} NOT NULL DEFAULT 0;
ALTER TABLE tenants ADD COLUMN pruned_at {bigint} NOT NULL DEFAULT 0;
