-- Alerts. subject: agent:ID, team:NAME or tenant; about: which of its quotas or budgets, else empty. digest_id: the alert
-- of the tenant that it is part of. A subject has at most one active alert of each condition.
CREATE TABLE alerts (
    tenant          TEXT NOT NULL,
    alert_id        TEXT NOT NULL,
    condition       TEXT NOT NULL,
    subject         TEXT NOT NULL,
    about           TEXT NOT NULL,
    state           TEXT NOT NULL,
    data            TEXT NOT NULL,
    opened_at       {bigint} NOT NULL,
    seen_at         {bigint} NOT NULL,
    acknowledged_at {bigint},
    acknowledged_by TEXT,
    resolved_at     {bigint},
    resolved_by     TEXT,
    digest_id       TEXT,
    PRIMARY KEY (tenant, alert_id)
) {table};

CREATE UNIQUE INDEX alerts_active ON alerts (tenant, subject, condition, about) WHERE state <> 'resolved';
CREATE INDEX alerts_by_subject ON alerts (tenant, subject, alert_id);
CREATE INDEX alerts_of_agents ON alerts (tenant, condition, subject) WHERE state <> 'resolved' AND digest_id IS NULL;
CREATE INDEX alerts_in_digests ON alerts (tenant, digest_id, alert_id) WHERE state <> 'resolved' AND digest_id IS NOT NULL;
CREATE INDEX alerts_by_resolution ON alerts (tenant, resolved_at) WHERE resolved_at IS NOT NULL;
