"""Missing context."""
