"""Hooks of coding agents: a resident process records what agents do, and tells them what others know."""
