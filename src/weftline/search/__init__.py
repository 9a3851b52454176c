"""What is found."""
