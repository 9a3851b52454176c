-- Webhooks and their deliveries.

-- A webhook has the rights of the principal that created it. cursor: the last event processed; reason: why it is disabled.
-- Only the lease holder sends. A lease without a holder is a backoff.
CREATE TABLE webhooks (
    tenant       TEXT NOT NULL,
    webhook_id   TEXT NOT NULL,
    url          TEXT NOT NULL,
    types        TEXT,
    session_id   TEXT,
    description  TEXT NOT NULL,
    secret       TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    created_at   {bigint} NOT NULL,
    state        TEXT NOT NULL,
    reason       TEXT,
    cursor       {bigint} NOT NULL,
    delivered    {bigint} NOT NULL,
    holder       TEXT,
    lease_until  {bigint} NOT NULL,
    PRIMARY KEY (tenant, webhook_id)
) {table};

-- Pending and failed deliveries. Successful ones are only counted.
CREATE TABLE webhook_deliveries (
    tenant      TEXT NOT NULL,
    webhook_id  TEXT NOT NULL,
    seq         {bigint} NOT NULL,
    state       TEXT NOT NULL,
    attempts    {bigint} NOT NULL,
    due_at      {bigint} NOT NULL,
    last_status {bigint},
    last_error  TEXT,
    PRIMARY KEY (tenant, webhook_id, seq)
) {table};

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (tenant, webhook_id, due_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_dead ON webhook_deliveries (tenant, webhook_id, seq) WHERE state = 'dead';
