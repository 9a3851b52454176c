-- Tool profile of an API key, which decides the tools that its callers see listed; null: the server's setting.
ALTER TABLE api_keys ADD COLUMN tools TEXT;

-- Whether an agent has agents below it is part of every caller's identity.
CREATE INDEX principals_by_parent ON principals (tenant, parent_id);
