-- Compactions that wait for a run or are being run, of all tenants.
CREATE INDEX compactions_to_run ON compactions (compaction_id) WHERE state IN ('queued', 'running');
