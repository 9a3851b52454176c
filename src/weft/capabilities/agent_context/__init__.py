"""Agent context."""
