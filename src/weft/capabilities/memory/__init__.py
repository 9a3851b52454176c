"""Private memory: what an agent keeps for itself, globally or in a session."""
