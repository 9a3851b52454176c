-- MCP servers whose tools Weftline calls for agents. target: a command line or a URL; variables: the environment of a
-- command or the headers of a URL as JSON, each a reference to the environment of the server or sealed; agents: an ACL.
CREATE TABLE gateway_servers (
    tenant    TEXT NOT NULL,
    name      TEXT NOT NULL,
    kind      TEXT NOT NULL,
    target    TEXT NOT NULL,
    variables TEXT NOT NULL,
    agents    TEXT,
    added_by  TEXT NOT NULL,
    added_at  {bigint} NOT NULL,
    PRIMARY KEY (tenant, name)
) {table};

-- Their tools under the names that agents call. definition: what the server says now, as JSON; approved: the digest of
-- the definition that was approved, empty if none was; state: what agents may do with it, and reason why not.
CREATE TABLE gateway_tools (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    server     TEXT NOT NULL,
    tool       TEXT NOT NULL,
    definition TEXT NOT NULL,
    approved   TEXT NOT NULL,
    state      TEXT NOT NULL,
    reason     TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) {table};
CREATE INDEX gateway_tools_by_server ON gateway_tools (tenant, server);
