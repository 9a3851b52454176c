"""Model migration."""
