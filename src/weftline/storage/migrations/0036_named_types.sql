-- Agent types that ACLs name, and who wrote these ACLs: nobody outside of that tree may create the first agent of such a
-- type, since it would get the access that was meant for others. Names are kept after the ACL is gone: copies of it may
-- be in history.
CREATE TABLE named_types (
    tenant     TEXT NOT NULL,
    agent_type TEXT NOT NULL,
    named_by   TEXT NOT NULL,
    PRIMARY KEY (tenant, agent_type, named_by)
) {table};
