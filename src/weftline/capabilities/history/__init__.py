"""One content-addressed history for everything that changes."""
