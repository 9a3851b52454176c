"""The event log: ordered events, filters, and webhooks."""
