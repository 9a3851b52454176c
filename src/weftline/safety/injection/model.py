"""Port of the injection detector, and its result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from weftline.kernel.errors import Unavailable


class DetectorUnavailable(Unavailable):
    """The injection detector cannot be loaded."""

    code = "INJECTION_DETECTOR_UNAVAILABLE"
    hint = (
        "Install Weftline again where it runs, or correct WEFTLINE_INJECTION_MODEL; nothing is "
        "accepted unchecked until then."
    )


# Level at which one text is flagged, and by how much ten times as many texts raise it.
_FLAGGED_LEVEL = 2.0
_LEVEL_OF_TEN_TEXTS = 0.4


@dataclass(frozen=True, slots=True)
class Detection:
    """Score of a text, whether it exceeds the thresholds, and the passage that caused it."""

    # A logit: higher is more suspicious. Comparable between texts of the same kind only.
    score: float
    # Fewer than 1 % of harmless texts of this kind score as high, even among those that look like attacks.
    flagged: bool
    # Fewer than 0.1 % of ordinary texts of this kind do.
    strict: bool
    # The most suspicious passage, in normal form: decoded, without invisible characters.
    excerpt: str
    # How rare such a score is among harmless texts of this kind: 2 for one in a hundred, 3 for one in a thousand. None
    # if the detector knows no more than its two thresholds.
    level: float | None = None

    def is_rare_among(self, texts: int) -> bool:
        """Whether the score is high even for the highest of many texts, such as the passages of a document.

        Fewer than one in a hundred harmless documents has such a passage, whatever their length: measured with up to
        450 passages. Those of one document resemble each other, so the bar rises by less than independent ones need.
        """
        if self.level is None:
            return self.strict
        return self.level >= _FLAGGED_LEVEL + _LEVEL_OF_TEN_TEXTS * math.log10(max(texts, 1))


HARMLESS = Detection(score=-8.0, flagged=False, strict=False, excerpt="")


class InjectionDetector(Protocol):
    """Scores texts for prompt injection. Thread-safe; CPU-bound, so long texts belong in a thread."""

    def detect(self, text: str, *, data: bool) -> Detection:
        """Score a text.

        ``data`` is true for documents, tool results and imports, where any request to an assistant is out of place.
        Humans and agents give each other orders: in their text only the wording of an attack counts.
        """
        ...
