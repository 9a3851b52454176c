"""Session indexing."""
