"""Index replicas: segments on disk and in memory, visibility masks and views."""
