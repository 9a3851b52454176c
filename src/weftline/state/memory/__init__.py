"""Private memory: key-value entries of one agent, global or per session."""
