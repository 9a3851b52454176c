"""Metering: one entry for each assembly, reported model call and score; roll-ups of them by minute, hour and day."""
