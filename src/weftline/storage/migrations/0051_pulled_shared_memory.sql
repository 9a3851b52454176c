-- shared: the versions of the memory of teams and users that the session has with its snapshot, as JSON. NULL in
-- snapshots of earlier versions of Weftline, which pinned none: their sessions read the current one until they pull.
ALTER TABLE context_snapshots ADD COLUMN shared TEXT;
