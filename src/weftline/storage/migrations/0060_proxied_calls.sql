-- Receipts of calls of models through the model proxy. call_id: that of the usage entry. given_tokens: what the client sent.
-- cost_nanos, given_cost_nanos: what the call cost, and is modelled to have cost as the client sent it; NULL without a price.
CREATE TABLE proxied_calls (
    tenant             TEXT NOT NULL,
    call_id            TEXT NOT NULL,
    agent_id           TEXT NOT NULL,
    session_id         TEXT NOT NULL,
    conversation       TEXT NOT NULL,
    model              TEXT NOT NULL,
    mode               TEXT NOT NULL,
    created_at         {bigint} NOT NULL,
    given_tokens       {bigint} NOT NULL,
    input_tokens       {bigint} NOT NULL,
    output_tokens      {bigint} NOT NULL,
    cache_read_tokens  {bigint} NOT NULL,
    cache_write_tokens {bigint} NOT NULL,
    cost_nanos         {bigint},
    given_cost_nanos   {bigint},
    PRIMARY KEY (tenant, call_id)
) {table};
CREATE INDEX proxied_calls_by_agent ON proxied_calls (tenant, agent_id, created_at, call_id);
CREATE INDEX proxied_calls_by_conversation ON proxied_calls (tenant, agent_id, conversation, created_at);
CREATE INDEX proxied_calls_by_session ON proxied_calls (tenant, session_id);
CREATE INDEX proxied_calls_by_creation ON proxied_calls (tenant, created_at, call_id);
