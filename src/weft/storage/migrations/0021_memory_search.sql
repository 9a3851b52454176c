-- The principal that caused an event: several agents may have the same participant name.
ALTER TABLE events ADD COLUMN principal_id TEXT;

-- Persistent memory was not indexed so far. Position 1 is before the first event: only persistent memory follows.
INSERT INTO jobs (tenant, job, cursor, lease_until, due_at, progress)
SELECT tenant, 'sessions.reindex', '1', 0, 0, '' FROM tenants WHERE TRUE
ON CONFLICT DO NOTHING;
