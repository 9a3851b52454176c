"""Detection of prompt injection: text from outside that tries to give an agent instructions."""
