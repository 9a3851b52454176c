"""Weftline on the command line: every operation as a command, and the commands of the operator."""
