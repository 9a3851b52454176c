"""Indexing: collections of chunks, chunking, embeddings and text analysis."""
