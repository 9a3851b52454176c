-- Who may see a session: patterns of its creator and its members, as JSON.
ALTER TABLE sessions ADD COLUMN audience TEXT NOT NULL DEFAULT '[]';

-- The same patterns, one in each row, to list the sessions of a caller without reading those of others.
CREATE TABLE session_members (
    tenant     TEXT NOT NULL,
    pattern    TEXT NOT NULL,
    created_at {bigint} NOT NULL,
    session_id TEXT NOT NULL,
    archived   {bigint} NOT NULL,
    PRIMARY KEY (tenant, pattern, created_at, session_id)
) {table};

CREATE INDEX session_members_by_session ON session_members (tenant, session_id);

-- Until now the configuration named the participants.
{sqlite_only}
UPDATE sessions SET
    audience = (SELECT json_group_array(value) FROM (
        SELECT 'principal:' || created_by AS value
        UNION ALL SELECT value FROM json_each(COALESCE(json_extract(config, '$.participants'), '["*"]')))),
    config = json_remove(config, '$.participants');
INSERT INTO session_members (tenant, pattern, created_at, session_id, archived)
SELECT DISTINCT s.tenant, e.value, s.created_at, s.session_id, s.archived_at IS NOT NULL
FROM sessions s, json_each(s.audience) e;
{end_sqlite_only}
{postgres_only}
UPDATE sessions SET
    audience = (jsonb_build_array('principal:' || created_by)
                || COALESCE(config::jsonb -> 'participants', '["*"]'::jsonb))::text,
    config = (config::jsonb - 'participants')::text;
INSERT INTO session_members (tenant, pattern, created_at, session_id, archived)
SELECT DISTINCT s.tenant, e.value, s.created_at, s.session_id, CASE WHEN s.archived_at IS NULL THEN 0 ELSE 1 END
FROM sessions s, jsonb_array_elements_text(s.audience::jsonb) e (value);
{end_postgres_only}
