"""Shelves: the chunks that searching finds, whatever they are cut from, with their vectors."""
