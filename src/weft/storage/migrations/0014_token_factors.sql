-- Reported tokens divided by estimated ones, learned for each model from the usage of its calls.
CREATE TABLE token_factors (
    tenant     TEXT NOT NULL,
    model      TEXT NOT NULL,
    factor     {real} NOT NULL,
    samples    {bigint} NOT NULL,
    updated_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, model)
) {table};
