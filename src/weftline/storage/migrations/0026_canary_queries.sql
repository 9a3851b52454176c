-- The plan and the figures of the steps in which a growing share of queries is answered by the new model, as JSON.
ALTER TABLE model_migrations ADD COLUMN canary TEXT;

-- Queries out of a thousand that a model in the role 'building' answers.
ALTER TABLE tenant_models ADD COLUMN share {bigint} NOT NULL DEFAULT 0;
