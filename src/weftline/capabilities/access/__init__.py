"""Tenants, principals (agents and humans), API keys, tokens and the audit log."""
