"""Message search: fuzzy full text, by sender and by time."""
