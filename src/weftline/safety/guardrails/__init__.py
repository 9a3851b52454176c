"""Guardrails: rules of the layers that prohibit actions, and what happens when a call violates one."""
