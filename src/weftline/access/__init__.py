"""Who, and what they may."""
