-- Random bytes that the hash of a commit covers, so that nothing can be guessed from it. NULL: a commit without salt.
ALTER TABLE commits ADD COLUMN salt {blob};
