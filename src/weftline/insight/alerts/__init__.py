"""Alerts: what operators should look at, with one active alert for each condition and subject."""
