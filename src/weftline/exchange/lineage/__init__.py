"""Lineage: what was derived from what, and forgetting a source with everything that was derived from it."""
