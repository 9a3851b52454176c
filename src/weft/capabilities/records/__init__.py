"""Portable records of what the engine did: the types of Agent Context, their schemas, and where they are kept."""
