-- The form of a board's value: NULL for text, application/json for JSON.
ALTER TABLE entries ADD COLUMN media_type TEXT;
