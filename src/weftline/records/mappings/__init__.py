"""Converts native objects of other systems to records and back, with their native ids."""
