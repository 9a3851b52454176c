"""Knowledge: domains of documents, their ingestion into the search index, and their sources."""
