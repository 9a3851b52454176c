"""Sessions: one unit of work each, from creation to archive to deletion."""
