"""Weft: the context layer for multi-agent systems."""
