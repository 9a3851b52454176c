-- Conversations of agents with models through the model proxy: a line of each is a window, or a branch of it.
-- state: digests of its messages, as JSON; the messages are events of the window.
CREATE TABLE proxied_conversations (
    tenant     TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    session_id TEXT NOT NULL,
    branch     TEXT NOT NULL,
    state      TEXT NOT NULL,
    updated_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, agent_id, session_id, branch)
) {table};
CREATE INDEX proxied_conversations_by_session ON proxied_conversations (tenant, session_id);

-- What leads a request to a conversation: digests of a client's id, of a first message, of an answer's id.
CREATE TABLE proxied_conversation_keys (
    tenant     TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    key_hash   TEXT NOT NULL,
    session_id TEXT NOT NULL,
    branch     TEXT NOT NULL,
    PRIMARY KEY (tenant, agent_id, key_hash, session_id, branch)
) {table};
CREATE INDEX proxied_conversation_keys_by_session ON proxied_conversation_keys (tenant, session_id);
