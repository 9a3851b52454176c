-- The naive baseline is the conversation alone; whole documents with evidence in the prompt count apart.
ALTER TABLE usage_entries ADD COLUMN document_tokens {bigint} NOT NULL DEFAULT 0;
ALTER TABLE usage_rollups ADD COLUMN document_tokens {bigint} NOT NULL DEFAULT 0;
ALTER TABLE usage_totals ADD COLUMN document_tokens {bigint} NOT NULL DEFAULT 0;
-- Null for receipts from before.
ALTER TABLE receipts ADD COLUMN document_tokens {bigint};

-- Earlier baselines counted the documents of every candidate, and nothing tells which part was the conversation. So
-- earlier calls claim no savings: their baseline is what was sent. Sums of any interval stay the sums of its calls.
UPDATE usage_entries SET naive_baseline_tokens = engine_assembled_tokens, naive_cost_nanos = expected_cost_nanos;
UPDATE usage_rollups SET naive_baseline_tokens = engine_assembled_tokens, naive_cost_nanos = expected_cost_nanos;
UPDATE usage_totals SET naive_baseline_tokens = engine_assembled_tokens, naive_cost_nanos = expected_cost_nanos;
UPDATE receipts SET naive_tokens = assembled_tokens, naive_cost = cost;
