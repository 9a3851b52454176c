"""Isolated worker processes that parse untrusted content."""
