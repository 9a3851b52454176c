"""Conversations with models through the model proxy, recognised and recorded as windows."""
