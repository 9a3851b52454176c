"""What is known to be missing: detected, asked for, resolved."""
