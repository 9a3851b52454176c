-- Windows: the settings of one agent's conversation in one session. Its events are in history, as the line
-- window:SESSION:AGENT. shares is JSON; last_number is the number of the newest event; unsaved_since is set while autosave
-- has something to save.
CREATE TABLE windows (
    tenant                TEXT NOT NULL,
    session_id            TEXT NOT NULL,
    agent_id              TEXT NOT NULL,
    model                 TEXT,
    model_max_tokens      {bigint},
    shared_cw_max_tokens  {bigint},
    reserved_tokens       {bigint},
    shares                TEXT,
    parent_id             TEXT,
    shares_with           TEXT,
    compaction_threshold  {real},
    autosave              {bigint} NOT NULL,
    last_number           {bigint} NOT NULL,
    unsaved_since         {bigint},
    created_at            {bigint} NOT NULL,
    updated_at            {bigint} NOT NULL,
    PRIMARY KEY (tenant, session_id, agent_id)
) {table};

-- A search of all sessions reads the windows of its caller.
CREATE INDEX windows_by_agent ON windows (tenant, agent_id);

-- Windows that nothing was added to are not in this index, so looking for unsaved ones costs nothing for them.
CREATE INDEX windows_unsaved ON windows (tenant, unsaved_since) WHERE unsaved_since IS NOT NULL;

-- Routes: events of one category in an agent's window are shown to another agent or to all agents of a type.
CREATE TABLE window_routes (
    tenant     TEXT NOT NULL,
    session_id TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    category   TEXT NOT NULL,
    to_agent   TEXT NOT NULL,
    to_type    TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, agent_id, category, to_agent, to_type)
) {table};
