-- How a server behind the gateway is used, as JSON: what is not in it has its default.
ALTER TABLE gateway_servers ADD COLUMN settings TEXT NOT NULL DEFAULT '{{}}';

-- Whole answers of servers behind the gateway are deleted by their age, those of a session with it.
CREATE INDEX proxied_outputs_by_age ON proxied_outputs (tenant, conversation, created_at);
