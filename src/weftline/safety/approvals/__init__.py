"""Approvals: calls that are held until a human approves or rejects them."""
