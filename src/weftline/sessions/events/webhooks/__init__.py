"""Webhooks: signed HTTP delivery of events with retries and dead letters."""
