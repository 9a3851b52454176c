"""Splits documents into chunks."""
