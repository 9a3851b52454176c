"""Compaction: retention of facts by strategy and baseline, and training of the word model."""
