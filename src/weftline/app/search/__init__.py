"""Search at runtime: replicas of this process and the embedding cache."""
