"""Training and judging of the text classifier: what instructs the reader, and what a sentence states."""
