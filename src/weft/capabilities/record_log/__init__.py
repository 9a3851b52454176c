"""Record log."""
