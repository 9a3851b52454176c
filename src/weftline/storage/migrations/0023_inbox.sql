-- Direct messages are read by side: what a principal sent, and what it received.
CREATE INDEX messages_sent_directly ON messages (tenant, session_id, sender, message_id)
    WHERE substr(audience, 1, 7) = 'direct:';
CREATE INDEX messages_received_directly ON messages (tenant, session_id, recipient_id, message_id)
    WHERE substr(audience, 1, 7) = 'direct:';

-- Messages addressed to a principal that it has not acknowledged; a row is deleted when it is.
-- missed: earlier messages of the sender that had to leave the full inbox.
CREATE TABLE inbox (
    tenant       TEXT NOT NULL,
    recipient_id TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    message_id   {bigint} NOT NULL,
    sender       TEXT NOT NULL,
    sent_at      {bigint} NOT NULL,
    missed       {bigint} NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, recipient_id, session_id, message_id)
) {table};

CREATE INDEX inbox_by_session ON inbox (tenant, session_id);
