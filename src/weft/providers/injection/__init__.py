"""Injection detectors: the one included in Weft, and models from outside."""
