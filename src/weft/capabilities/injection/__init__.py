"""Detection of prompt injection: text that tries to give an agent instructions of its own."""
