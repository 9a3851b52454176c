-- The agent for whom a named snapshot counts; automatic ones count for none.
ALTER TABLE tags ADD COLUMN owner TEXT;

CREATE INDEX tags_by_owner ON tags (tenant, owner) WHERE owner IS NOT NULL;

-- 24 hours of metrics in intervals of five minutes (bucket: its start in seconds), added up by each process. Rows of a
-- tenant count its calls; those of the tenant '' count cache lookups and transactions of the process. first_at: when the
-- process began to count in this interval.
CREATE TABLE metric_history (
    tenant        TEXT NOT NULL,
    bucket        {bigint} NOT NULL,
    process       TEXT NOT NULL,
    first_at      {bigint} NOT NULL,
    calls         {bigint} NOT NULL,
    errors        {bigint} NOT NULL,
    timed         {bigint} NOT NULL,
    seconds       {real} NOT NULL,
    messages      {bigint} NOT NULL,
    searches      {bigint} NOT NULL,
    lookups       {bigint} NOT NULL,
    hits          {bigint} NOT NULL,
    queries       {bigint} NOT NULL,
    query_seconds {real} NOT NULL,
    PRIMARY KEY (tenant, bucket, process)
) {table};

CREATE INDEX metric_history_by_bucket ON metric_history (bucket);
