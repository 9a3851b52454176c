"""Detection and masking of secrets and personal data (PII) in text and JSON."""
