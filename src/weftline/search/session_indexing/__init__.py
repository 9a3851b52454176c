"""Incremental index of sessions and memories."""
