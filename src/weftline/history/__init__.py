"""What is stored, and every earlier version of it."""
