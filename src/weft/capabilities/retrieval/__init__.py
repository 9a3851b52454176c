"""Retrieval: finding what matters for a task, by words and by meaning, in everything the caller may see."""
