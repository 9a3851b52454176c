"""Each agent's conversation, long and short."""
