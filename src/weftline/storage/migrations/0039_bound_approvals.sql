-- The session that the connection of a held call was bound to.
ALTER TABLE approvals ADD COLUMN bound_session TEXT;
