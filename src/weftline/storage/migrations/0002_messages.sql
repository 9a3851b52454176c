-- Messages of a session, and their number by audience.
-- Message ids are 1, 2, 3 ... without gaps in each session; timestamps never decrease.

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

-- The stamp is unique and changes when a message moves to another audience: equal stamp and count mean the same messages.
CREATE TABLE message_audiences (
    tenant     TEXT NOT NULL,
    session_id TEXT NOT NULL,
    audience   TEXT NOT NULL,
    messages   {bigint} NOT NULL,
    stamp      {bigint} NOT NULL,
    PRIMARY KEY (tenant, session_id, audience)
) {table};
