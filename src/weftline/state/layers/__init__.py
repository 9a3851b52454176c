"""Layers: platform rules, tenant policies, team guidelines and personas, the prefix of every assembled prompt."""
