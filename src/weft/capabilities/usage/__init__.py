"""Usage: what a caller may do here and now, told to itself."""
