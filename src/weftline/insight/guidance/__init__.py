"""What a caller may do: its operations with examples, and advice."""
