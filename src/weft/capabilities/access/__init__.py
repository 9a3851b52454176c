"""Tenants, the principals in them, and the keys and tokens that prove who is calling."""
