-- Limits of a tenant's plan that were set for this tenant alone, as JSON by name.
ALTER TABLE tenant_plans ADD COLUMN limits TEXT NOT NULL DEFAULT '{{}}';

-- Budgets by subject (tenant, team:NAME or agent:ID) and period (day or month). tokens and nanodollars: their limits;
-- warn_at: the part of a limit from which admins are warned; at_limit: what happens at the limit.
CREATE TABLE budgets (
    tenant      TEXT NOT NULL,
    subject     TEXT NOT NULL,
    period      TEXT NOT NULL,
    tokens      {bigint},
    nanodollars {bigint},
    at_limit    TEXT NOT NULL,
    warn_at     {real} NOT NULL,
    set_by      TEXT NOT NULL,
    set_at      {bigint} NOT NULL,
    PRIMARY KEY (tenant, subject, period)
) {table};

-- What was spent of a budget since the start of a period. A call is added with its receipt, and corrected when the
-- provider's usage is reported. near_at, exceeded_at: when admins were told.
CREATE TABLE budget_spend (
    tenant         TEXT NOT NULL,
    subject        TEXT NOT NULL,
    period         TEXT NOT NULL,
    starts_at      {bigint} NOT NULL,
    tokens         {bigint} NOT NULL,
    nanodollars    {bigint} NOT NULL,
    calls          {bigint} NOT NULL,
    unpriced_calls {bigint} NOT NULL,
    near_at        {bigint},
    exceeded_at    {bigint},
    PRIMARY KEY (tenant, subject, period, starts_at)
) {table};
