"""Messages: what the participants of a session say to each other, each shown to whom it is meant for."""
