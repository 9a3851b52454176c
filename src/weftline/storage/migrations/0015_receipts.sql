-- Receipts of assembled prompts, the texts of their blocks, and what providers reported for the calls.

-- body: the receipt as packed JSON. The other columns are for queries and sums; cost in US dollars. Columns from
-- reported_at on: the usage that the provider reported, if any.
CREATE TABLE receipts (
    tenant             TEXT NOT NULL,
    receipt_id         TEXT NOT NULL,
    session_id         TEXT NOT NULL,
    agent_id           TEXT NOT NULL,
    model              TEXT NOT NULL,
    created_at         {bigint} NOT NULL,
    naive_tokens       {bigint} NOT NULL,
    assembled_tokens   {bigint} NOT NULL,
    cached_tokens      {bigint} NOT NULL,
    cost               {real},
    naive_cost         {real},
    body               {blob} NOT NULL,
    reported_at        {bigint},
    input_tokens       {bigint},
    output_tokens      {bigint},
    cache_read_tokens  {bigint},
    cache_write_tokens {bigint},
    reported_cost      {real},
    usage              TEXT,
    PRIMARY KEY (tenant, receipt_id)
) {table};

CREATE INDEX receipts_by_window ON receipts (tenant, session_id, agent_id, created_at, receipt_id);
CREATE INDEX receipts_by_agent ON receipts (tenant, agent_id, created_at, receipt_id);
CREATE INDEX receipts_by_creation ON receipts (tenant, created_at, receipt_id);

-- Messages of blocks as packed JSON, by SHA-256: consecutive prompts share most of them.
CREATE TABLE receipt_texts (
    tenant     TEXT NOT NULL,
    session_id TEXT NOT NULL,
    digest     {blob} NOT NULL,
    content    {blob} NOT NULL,
    PRIMARY KEY (tenant, session_id, digest)
) {table};
