"""Assembly of a prompt from everything an agent may read, within a token budget."""
