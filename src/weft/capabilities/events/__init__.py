"""What happened, told in order to whoever may know."""
