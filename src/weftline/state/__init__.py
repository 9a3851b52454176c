"""What agents share, know and are."""
