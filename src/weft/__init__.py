"""Weft: the context layer for multi-agent systems."""

__version__ = "0.1.0"
