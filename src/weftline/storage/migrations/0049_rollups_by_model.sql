-- SQLite adds up rows without sorting them only in the order of their key: by model, and by step.
{sqlite_only}
CREATE TABLE usage_rollups_by_model (
    tenant                  TEXT NOT NULL,
    unit                    TEXT NOT NULL,
    start                   {bigint} NOT NULL,
    kind                    TEXT NOT NULL,
    agent_id                TEXT NOT NULL,
    session_id              TEXT NOT NULL,
    step                    TEXT NOT NULL,
    model                   TEXT NOT NULL,
    teams                   TEXT NOT NULL,
    calls                   {bigint} NOT NULL,
    failed_calls            {bigint} NOT NULL,
    reported_calls          {bigint} NOT NULL,
    unpriced_calls          {bigint} NOT NULL,
    total_tokens            {bigint} NOT NULL,
    input_tokens            {bigint} NOT NULL,
    output_tokens           {bigint} NOT NULL,
    cache_read_tokens       {bigint} NOT NULL,
    cache_write_tokens      {bigint} NOT NULL,
    naive_baseline_tokens   {bigint} NOT NULL,
    engine_assembled_tokens {bigint} NOT NULL,
    cached_tokens           {bigint} NOT NULL,
    capacity_tokens         {bigint} NOT NULL,
    cost_nanos              {bigint} NOT NULL,
    expected_cost_nanos     {bigint} NOT NULL,
    naive_cost_nanos        {bigint} NOT NULL,
    reported_cost_nanos     {bigint} NOT NULL,
    gather_micros           {bigint} NOT NULL,
    retrieve_micros         {bigint} NOT NULL,
    plan_micros             {bigint} NOT NULL,
    render_micros           {bigint} NOT NULL,
    timed_calls             {bigint} NOT NULL,
    provider_micros         {bigint} NOT NULL,
    graded_calls            {bigint} NOT NULL,
    quality                 {bigint} NOT NULL,
    scored_calls            {bigint} NOT NULL,
    estimated_calls         {bigint} NOT NULL,
    sent_tokens             {bigint} NOT NULL,
    useful_tokens           {bigint} NOT NULL,
    overhead_tokens         {bigint} NOT NULL,
    PRIMARY KEY (tenant, unit, start, model, step, agent_id, session_id, teams, kind)
) STRICT, WITHOUT ROWID;

-- The columns are the same, in the same order.
INSERT INTO usage_rollups_by_model SELECT * FROM usage_rollups
ORDER BY tenant, unit, start, model, step, agent_id, session_id, teams, kind;
DROP TABLE usage_rollups;
ALTER TABLE usage_rollups_by_model RENAME TO usage_rollups;
{end_sqlite_only}

-- They went with the table; in PostgreSQL they are there.
CREATE INDEX IF NOT EXISTS usage_rollups_by_agent ON usage_rollups (tenant, unit, agent_id, start);
CREATE INDEX IF NOT EXISTS usage_rollups_by_session ON usage_rollups (tenant, session_id, unit, start);
