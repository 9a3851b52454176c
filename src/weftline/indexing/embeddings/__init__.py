"""Embedding models, their selection and the embedding cache."""
