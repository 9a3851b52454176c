"""Chunking: cutting texts where they may be cut, without losing where each piece stood."""
