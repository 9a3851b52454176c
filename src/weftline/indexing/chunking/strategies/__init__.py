"""Outlines by media type: where a text may be split."""
