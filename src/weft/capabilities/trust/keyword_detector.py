"""Detects the plainest wordings of prompt injection."""

from __future__ import annotations

import re

from weft.capabilities.injection.model import HARMLESS, Detection

_PATTERN = re.compile(
    r"(?i)\b(?:ignore|disregard|forget)\b[^.\n]{0,30}\b(?:previous|prior|above|earlier|all)\b[^.\n]{0,30}"
    r"\b(?:instruction|rule|direction|prompt)s?\b|\breveal\b[^.\n]{0,20}\bsystem prompt\b"
)


class KeywordDetector:
    """Flags wordings that overrule instructions."""

    def detect(self, text: str, *, data: bool) -> Detection:  # noqa: ARG002 - port
        found = _PATTERN.search(text)
        if found is None:
            return HARMLESS
        return Detection(10.0, flagged=True, strict=True, excerpt=found.group(), patterns=("override",))
