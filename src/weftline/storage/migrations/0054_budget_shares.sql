-- The parts of a budget's limits that one tree of agents, and one agent, may spend.
ALTER TABLE budgets ADD COLUMN tree_share {real};
ALTER TABLE budgets ADD COLUMN agent_share {real};

-- What a tree or an agent (share: tree:ID or agent:ID) spent of a budget with shares, beside the sums of the budget.
CREATE TABLE budget_share_spend (
    tenant         TEXT NOT NULL,
    subject        TEXT NOT NULL,
    period         TEXT NOT NULL,
    starts_at      {bigint} NOT NULL,
    share          TEXT NOT NULL,
    tokens         {bigint} NOT NULL,
    nanodollars    {bigint} NOT NULL,
    calls          {bigint} NOT NULL,
    unpriced_calls {bigint} NOT NULL,
    near_at        {bigint},
    exceeded_at    {bigint},
    PRIMARY KEY (tenant, subject, period, starts_at, share)
) {table};
