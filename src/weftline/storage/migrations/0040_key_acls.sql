-- Whether a key of the session's board ever had a read ACL: then its events are read by the ACL that the key has now.
-- Sessions from before are taken to have some.
ALTER TABLE sessions ADD COLUMN key_acls {bigint} NOT NULL DEFAULT 1;
