"""Models: which embedding model a tenant's searches use, and moving to another without a gap."""
