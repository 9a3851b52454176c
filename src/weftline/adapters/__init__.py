"""Adapters: Weftline as the checkpointer, store, session or memory of agent frameworks.

Each uses the public client only, and imports its framework: install it with the extra of the same name.
"""
