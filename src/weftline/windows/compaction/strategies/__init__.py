"""Strategies: which events of a window are summarised, in which groups, and to what size."""
