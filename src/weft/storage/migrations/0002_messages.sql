-- Messages of a session, and how many each audience has.
-- A session numbers its messages 1, 2, 3 without gaps; their times never go back.

ALTER TABLE sessions ADD COLUMN message_count {bigint} NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN last_message_at {bigint};

CREATE TABLE messages (
    tenant       TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    message_id   {bigint} NOT NULL,
    audience     TEXT NOT NULL,
    visibility   TEXT NOT NULL,
    sender       TEXT NOT NULL,
    sender_type  TEXT NOT NULL,
    recipient_id TEXT,
    message_type TEXT NOT NULL,
    category     TEXT NOT NULL,
    parent_id    {bigint},
    sent_at      {bigint} NOT NULL,
    content      {blob} NOT NULL,
    metadata     TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, message_id)
) {table};

CREATE INDEX messages_by_audience ON messages (tenant, session_id, audience, message_id);
CREATE INDEX messages_by_sender ON messages (tenant, session_id, sender, audience, message_id);
CREATE INDEX messages_by_time ON messages (tenant, session_id, sent_at, message_id);

-- The stamp changes when a message leaves or joins an audience other than by being added, and no two sessions share one:
-- a count under the same stamp stands for the same messages.
CREATE TABLE message_audiences (
    tenant     TEXT NOT NULL,
    session_id TEXT NOT NULL,
    audience   TEXT NOT NULL,
    messages   {bigint} NOT NULL,
    stamp      {bigint} NOT NULL,
    PRIMARY KEY (tenant, session_id, audience)
) {table};
