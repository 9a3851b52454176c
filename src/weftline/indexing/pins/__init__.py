"""Pins: items that belong to every search answer and every prompt, whatever their score."""
