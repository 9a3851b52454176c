"""Performance metrics of the process and of a tenant's calls."""
