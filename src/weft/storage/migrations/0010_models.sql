-- The way of a tenant from one embedding model to another: its last one. Collection and number are the last chunk that was
-- looked at. It is comparable if both models can be asked; the comparison is JSON. The problem is why it does not go on.
CREATE TABLE model_migrations (
    tenant       TEXT NOT NULL,
    from_model   TEXT NOT NULL,
    to_model     TEXT NOT NULL,
    state        TEXT NOT NULL,
    comparable   {bigint} NOT NULL,
    started_by   TEXT NOT NULL,
    started_at   {bigint} NOT NULL,
    switched_at {bigint},
    finished_at  {bigint},
    collection        TEXT NOT NULL,
    number       {bigint} NOT NULL,
    embedded     {bigint} NOT NULL,
    comparison   TEXT,
    problem      TEXT,
    PRIMARY KEY (tenant)
) {table};
