"""The injection detector included in Weft: the text classifier, and the thresholds that it was calibrated to.

Slow to import (numpy): imported by the first use. docs/concepts/injection.md says what the weights were trained on.
"""

from __future__ import annotations

from weft.capabilities.injection.detector import EncoderDetector, Thresholds
from weft.encoder.classifier import load_classifier

TALK = Thresholds(flagged=3.5, strict=7.5, least=-2.0)
DATA = Thresholds(flagged=5.0, strict=8.5, least=-2.5)


def load_included() -> EncoderDetector:
    """Return the included detector."""
    return EncoderDetector(load_classifier(), talk=TALK, data=DATA)
