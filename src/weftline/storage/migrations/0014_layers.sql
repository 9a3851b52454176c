-- Layers of prompts: which there are, which versions sessions have pinned, and which edits are critical.

-- Names of the layers that have been defined: tenant, team:NAME. Their content is in the line layer:NAME.
CREATE TABLE layers (
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) {table};

-- The layer versions that an agent's prompts have in a session, as JSON; one row, so that they change together.
CREATE TABLE layer_pins (
    tenant       TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    versions     TEXT NOT NULL,
    pinned_at    {bigint} NOT NULL,
    PRIMARY KEY (tenant, session_id, principal_id)
) {table};

-- Versions of a definition or layer that agents with an older one are told to pull.
CREATE TABLE critical_edits (
    tenant    TEXT NOT NULL,
    line_id   TEXT NOT NULL,
    version   {bigint} NOT NULL,
    author    TEXT NOT NULL,
    marked_at {bigint} NOT NULL,
    PRIMARY KEY (tenant, line_id, version)
) {table};
