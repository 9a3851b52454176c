"""Collections: indexed chunks and their vectors."""
