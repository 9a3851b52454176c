-- The size of all events that were added to a window. Of those from before about four bytes for each of their tokens.
ALTER TABLE windows ADD COLUMN stored_bytes {bigint} NOT NULL DEFAULT 0;
UPDATE windows SET stored_bytes = COALESCE((
    SELECT 4 * l.weight FROM lines l
    WHERE l.tenant = windows.tenant AND l.line_id = 'window:' || windows.session_id || ':' || windows.agent_id
), 0);
