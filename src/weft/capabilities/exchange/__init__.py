"""Records and contexts that leave and arrive: looking at them, exporting, importing, redacting."""
