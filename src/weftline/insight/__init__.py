"""What it cost, and what would be better."""
