"""The injection detector included in Weftline: the text classifier, and the thresholds that it was calibrated to.

Slow to import (numpy): imported by the first use. docs/concepts/injection.md says what the weights were trained on.
"""

from __future__ import annotations

from weftline.encoder.classifier import CLASSIFIER, TextClassifier
from weftline.encoder.onnx_files import WeightsUnreadable
from weftline.safety.injection import DetectorUnavailable, EncoderDetector, Thresholds

TALK = Thresholds(flagged=4.0, strict=6.0, least=-1.0)
DATA = Thresholds(flagged=7.0, strict=9.0, least=-1.0)


def load_included() -> EncoderDetector:
    """Return the included detector."""
    return EncoderDetector(_classifier, talk=TALK, data=DATA)


def _classifier() -> TextClassifier:
    try:
        return CLASSIFIER.get()
    except WeightsUnreadable as error:
        raise DetectorUnavailable(str(error)) from error
    except ImportError as error:
        raise DetectorUnavailable(
            "The package onnxruntime, which runs the text classifier, is not installed."
        ) from error
