-- Who disabled a principal, and with which principal above it, if not by itself: enabling that one enables it again.
ALTER TABLE principals ADD COLUMN disabled_by TEXT;
ALTER TABLE principals ADD COLUMN disabled_with TEXT;

-- The orchestrator at the top of an agent's tree, itself included; null for humans. Parents never change.
ALTER TABLE principals ADD COLUMN root_id TEXT;

WITH RECURSIVE trees (tenant, principal_id, root_id) AS (
    SELECT p.tenant, p.principal_id, p.principal_id FROM principals p
    LEFT JOIN principals parent ON parent.tenant = p.tenant AND parent.principal_id = p.parent_id
    WHERE p.kind = 'agent' AND (parent.kind IS NULL OR parent.kind <> 'agent')
    UNION
    SELECT p.tenant, p.principal_id, trees.root_id FROM trees
    JOIN principals p ON p.tenant = trees.tenant AND p.parent_id = trees.principal_id AND p.kind = 'agent')
UPDATE principals SET root_id = (
    SELECT trees.root_id FROM trees
    WHERE trees.tenant = principals.tenant AND trees.principal_id = principals.principal_id)
WHERE kind = 'agent';

CREATE INDEX principals_by_root ON principals (tenant, root_id) WHERE disabled_at IS NULL;
CREATE INDEX principals_by_type ON principals (tenant, agent_type, root_id);

-- Partial: enabling reads only what was disabled with a principal, and the limit counts only active agents.
CREATE INDEX principals_by_disabled_with ON principals (tenant, disabled_with) WHERE disabled_with IS NOT NULL;
CREATE INDEX principals_by_activity ON principals (tenant, kind) WHERE disabled_at IS NULL;

-- Retention of the event log: the last event that was deleted, and its time.
ALTER TABLE tenants ADD COLUMN pruned_seq {bigint} NOT NULL DEFAULT 0;
ALTER TABLE tenants ADD COLUMN pruned_at {bigint} NOT NULL DEFAULT 0;
