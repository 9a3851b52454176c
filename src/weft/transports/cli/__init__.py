"""Weft on the command line: every operation as a command, and the few acts of whoever runs it."""
