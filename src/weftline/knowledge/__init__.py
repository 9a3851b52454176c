"""Documents and their sources."""
