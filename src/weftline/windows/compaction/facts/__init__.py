"""Key facts of a window: extraction, supersession, and the forms in which they are found again."""
