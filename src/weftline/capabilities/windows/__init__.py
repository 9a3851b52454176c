"""Windows: one agent's conversation in one session, with a token limit and budgets by category."""
