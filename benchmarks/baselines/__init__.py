"""Baselines: the same work without Weft."""
