"""Chunking."""
