"""Formatters."""
