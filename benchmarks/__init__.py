"""Benchmarks: every speed is a ratio to a baseline measured in the same run."""
