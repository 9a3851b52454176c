"""What models are, cost and may cost."""
