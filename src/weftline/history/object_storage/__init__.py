"""Large values outside the database: pointers, staging, and the index of stored objects."""
