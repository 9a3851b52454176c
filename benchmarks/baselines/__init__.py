"""Baselines: the same work without Weftline."""
