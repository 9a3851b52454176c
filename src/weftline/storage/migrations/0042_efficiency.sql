-- How much of a prompt the model used. overhead_tokens: what every prompt needs, such as layers; useful_tokens: what the
-- answer used; capacity_tokens: what the window could hold. efficiency_basis: answer, or retrieval_scores for an
-- estimate; null for receipts from before. efficiency: the use of each item as packed JSON, once an answer was reported.
ALTER TABLE receipts ADD COLUMN capacity_tokens {bigint};
ALTER TABLE receipts ADD COLUMN overhead_tokens {bigint};
ALTER TABLE receipts ADD COLUMN useful_tokens {bigint};
ALTER TABLE receipts ADD COLUMN efficiency_basis TEXT;
ALTER TABLE receipts ADD COLUMN efficiency {blob};
