"""What leaves and comes back."""
