-- What the model proxy changed in requests. conversation: digest of a client's id, or of a first message. anchor: digest of
-- the part of a request, and the how manieth of that digest it is. edit: as JSON; empty for what was forwarded whole.
CREATE TABLE proxied_edits (
    tenant       TEXT NOT NULL,
    agent_id     TEXT NOT NULL,
    conversation TEXT NOT NULL,
    anchor       TEXT NOT NULL,
    edit         TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    created_at   {bigint} NOT NULL,
    PRIMARY KEY (tenant, agent_id, conversation, anchor)
) {table};
CREATE INDEX proxied_edits_by_session ON proxied_edits (tenant, session_id);

-- Whole texts of results of tools that were shortened.
CREATE TABLE proxied_outputs (
    tenant       TEXT NOT NULL,
    agent_id     TEXT NOT NULL,
    handle       TEXT NOT NULL,
    conversation TEXT NOT NULL,
    content      {blob} NOT NULL,
    session_id   TEXT NOT NULL,
    created_at   {bigint} NOT NULL,
    PRIMARY KEY (tenant, agent_id, handle, conversation)
) {rows_table};
CREATE INDEX proxied_outputs_by_session ON proxied_outputs (tenant, session_id);
