"""Port of the injection detector, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from weft.kernel.errors import Unavailable


class DetectorUnavailable(Unavailable):
    """The injection detector cannot be loaded."""

    code = "INJECTION_DETECTOR_UNAVAILABLE"
    hint = (
        "Install Weft again where it runs, or correct WEFT_INJECTION_MODEL; nothing is accepted unchecked until then."
    )


@dataclass(frozen=True, slots=True)
class Detection:
    """Score of a text, whether it exceeds the thresholds, and the passage that caused it."""

    # A logit: higher is more suspicious. Comparable between texts of the same kind only.
    score: float
    # At most 1 % of harmless texts of this kind score as high.
    flagged: bool
    # At most 0.1 %.
    strict: bool
    # The most suspicious passage, in normal form: decoded, without invisible characters.
    excerpt: str
    # Names of the patterns found in the passage.
    patterns: tuple[str, ...]


HARMLESS = Detection(score=-8.0, flagged=False, strict=False, excerpt="", patterns=())


class InjectionDetector(Protocol):
    """Scores texts for prompt injection. Thread-safe; CPU-bound, so long texts belong in a thread."""

    def detect(self, text: str, *, data: bool) -> Detection:
        """Score a text.

        ``data`` is true for documents, tool results and imports, where any request to an assistant is out of place.
        Humans and agents give each other orders: in their text only the wording of an attack counts.
        """
        ...
