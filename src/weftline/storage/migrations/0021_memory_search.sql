-- The principal that caused an event: several agents may have the same participant name.
ALTER TABLE events ADD COLUMN principal_id TEXT;

-- Persistent memory was not indexed so far. Position 1 is before the first event: only persistent memory follows. The
-- job only stores a cursor, which nobody holds: the lease of the indexing job covers its work.
INSERT INTO jobs (tenant, job, cursor, holder, lease_until, due_at, progress)
SELECT tenant, 'sessions.reindex', '1', '', 0, 0, '' FROM tenants WHERE TRUE
ON CONFLICT DO NOTHING;
