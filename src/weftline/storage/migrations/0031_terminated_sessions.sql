-- Sessions in which an agent is refused, with those below it, until a human reinstates it.
CREATE TABLE terminated_sessions (
    tenant        TEXT NOT NULL,
    principal_id  TEXT NOT NULL,
    session_id    TEXT NOT NULL,
    terminated_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, principal_id, session_id)
) {table};

CREATE INDEX terminated_sessions_by_session ON terminated_sessions (tenant, session_id);
