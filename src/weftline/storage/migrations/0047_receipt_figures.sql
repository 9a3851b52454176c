-- The latest calls of an agent are judged by their figures: read from the index, without the receipts themselves.
DROP INDEX receipts_by_agent;
CREATE INDEX receipts_by_agent ON receipts (tenant, agent_id, created_at, receipt_id, assembled_tokens, capacity_tokens,
    overhead_tokens, useful_tokens, efficiency_basis);
