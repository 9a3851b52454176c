-- Teams: named groups of agents and humans. The name of a deleted team is never used again, because ACLs may name it.
CREATE TABLE teams (
    tenant      TEXT NOT NULL,
    team        TEXT NOT NULL,
    description TEXT NOT NULL,
    created_by  TEXT NOT NULL,
    created_at  {bigint} NOT NULL,
    updated_at  {bigint} NOT NULL,
    deleted_at  {bigint},
    PRIMARY KEY (tenant, team)
) {table};

CREATE TABLE team_members (
    tenant       TEXT NOT NULL,
    team         TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    added_by     TEXT NOT NULL,
    added_at     {bigint} NOT NULL,
    PRIMARY KEY (tenant, team, principal_id)
) {table};

CREATE INDEX team_members_by_principal ON team_members (tenant, principal_id, team);
