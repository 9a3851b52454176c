"""Messages: the transcript of a session's members; each message is shown to its audience only."""
