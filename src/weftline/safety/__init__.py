"""Secrets, attacks, trust, approvals and guardrails."""
