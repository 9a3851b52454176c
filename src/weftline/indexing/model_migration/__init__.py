"""Migration of a tenant to another embedding model."""
