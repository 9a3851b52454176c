"""Records: list, show, add, redact and resolve them. The log of what happened to context."""
