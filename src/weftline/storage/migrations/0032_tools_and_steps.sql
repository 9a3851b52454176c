-- The step that a key or token is bound to: its callers may call the tools of the step only.
ALTER TABLE api_keys ADD COLUMN step TEXT;
ALTER TABLE access_tokens ADD COLUMN step TEXT;

-- Steps of tasks and the tools they need (a JSON list of names). owner: the principal for whose agents the step is;
-- empty for the whole tenant.
CREATE TABLE steps (
    tenant      TEXT NOT NULL,
    owner       TEXT NOT NULL,
    name        TEXT NOT NULL,
    description TEXT NOT NULL,
    tools       TEXT NOT NULL,
    defined_by  TEXT NOT NULL,
    defined_at  {bigint} NOT NULL,
    PRIMARY KEY (tenant, owner, name)
) {table};

-- Tools that runtimes have registered; owner as above, examples: a JSON list of tasks. Their searchable texts are chunks of the collection 'tools'.
CREATE TABLE registered_tools (
    tenant        TEXT NOT NULL,
    owner         TEXT NOT NULL,
    name          TEXT NOT NULL,
    description   TEXT NOT NULL,
    input_schema  TEXT NOT NULL,
    examples      TEXT NOT NULL,
    server        TEXT NOT NULL,
    tokens        {bigint} NOT NULL,
    bytes         {bigint} NOT NULL,
    registered_by TEXT NOT NULL,
    registered_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, owner, name)
) {table};

-- The tools that were last chosen for an agent in a session (empty: outside of sessions), so that a retry of the task
-- gets the same. step: the step it was in, empty if none.
CREATE TABLE tool_selections (
    tenant      TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    agent_id    TEXT NOT NULL,
    task_digest TEXT NOT NULL,
    step        TEXT NOT NULL,
    tools       TEXT NOT NULL,
    selected_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, session_id, agent_id)
) {table};
