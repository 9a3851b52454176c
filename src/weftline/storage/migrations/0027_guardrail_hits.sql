-- How often each rule of a layer was violated. digest identifies the rule as it was written: a changed one counts anew.
-- errors: hits because its condition could not be evaluated. since: its first hit.
CREATE TABLE guardrail_hits (
    tenant  TEXT NOT NULL,
    layer   TEXT NOT NULL,
    name    TEXT NOT NULL,
    digest  TEXT NOT NULL,
    hits    {bigint} NOT NULL,
    errors  {bigint} NOT NULL,
    since   {bigint} NOT NULL,
    last_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, layer, name, digest)
) {table};
