"""Embedding: texts as vectors, near each other where they mean alike."""
