"""Agent context: an agent's definition and its persistent memory; push, pull, copy and status."""
