-- Reported tokens divided by estimated ones, learned for each agent and model from the usage of its calls.
CREATE TABLE token_factors (
    tenant     TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    model      TEXT NOT NULL,
    factor     {real} NOT NULL,
    samples    {bigint} NOT NULL,
    updated_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, agent_id, model)
) {table};
