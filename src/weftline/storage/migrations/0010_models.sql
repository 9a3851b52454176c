-- The last model migration of a tenant. collection and number are the cursor. comparable: both models are available;
-- comparison: JSON. problem: why the migration is stuck.
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
