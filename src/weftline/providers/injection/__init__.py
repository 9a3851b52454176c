"""Injection detectors: the one included in Weftline, and models from outside."""
