"""The two databases: how each connects, commits, locks and wakes."""
