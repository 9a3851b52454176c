"""Recommendations: settings that would save tokens or money, tried on the receipts of earlier calls."""
