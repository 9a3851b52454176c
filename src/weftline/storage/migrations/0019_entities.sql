-- Entities of each chunk, one on each line: type, colon, value. Reindexing fills those of older chunks.
ALTER TABLE chunks ADD COLUMN entities TEXT NOT NULL DEFAULT '';
