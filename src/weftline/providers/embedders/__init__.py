"""Embedders: the bundled model and remote services."""
