"""Object storage."""
