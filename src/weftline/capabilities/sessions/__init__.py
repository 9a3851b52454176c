"""Sessions: one unit of work each, with create, archive and delete."""
