"""Plans: what a tenant is allowed, as quotas of every slice."""
