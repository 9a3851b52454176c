"""The injection detector that is included in Weft: an encoder reads a text in windows, and the worst window counts.

A text is normalised and cut into segments, and neighbouring segments are read together. In the text of humans and
agents only the wording of an attack counts: they give each other orders. In data any instruction to its reader is out
of place. The encoder was trained for both (evals/classifier).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from weft.capabilities.injection.model import HARMLESS, Detection
from weft.capabilities.injection.normal_form import normalise
from weft.capabilities.injection.segments import segments
from weft.capabilities.injection.windows import MAX_TOKENS, token_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.injection.windows import TokenWindow

_UNKNOWN, _START, _END = 100, 101, 102
_MAX_EXCERPT = 300


class Thresholds(NamedTuple):
    """Scores above which a text is flagged, and above which it is so at the strict bar.

    A window whose first score is below ``least`` is read no further.
    """

    flagged: float
    strict: float
    least: float

    def level(self, score: float) -> float:
        """Return how rare a score is among harmless texts, on the scale of the two thresholds."""
        return 2 + (score - self.flagged) / (self.strict - self.flagged)


class Encoder(Protocol):
    """Reads windows of tokens."""

    def tokens(self, text: str) -> list[int]: ...

    def instructs(self, tokens: Sequence[int], *, data: bool, least: float) -> float: ...


class EncoderDetector:
    """Implements ``InjectionDetector``."""

    def __init__(self, encoder: Encoder, *, talk: Thresholds, data: Thresholds) -> None:
        self._encoder = encoder
        self._thresholds = {False: talk, True: data}

    def detect(self, text: str, *, data: bool) -> Detection:
        normal = normalise(text)
        parts = [segment for each in (normal.text, *normal.decoded) for segment in segments(each)]
        tokens = [self._encoder.tokens(part)[: MAX_TOKENS - 2] or [_UNKNOWN] for part in parts]
        scored = [(self._score(window.tokens, data=data), window) for window in token_windows(tokens)]
        if not scored:
            return HARMLESS
        score, window = max(scored, key=lambda each: each[0])
        bar = self._thresholds[data]
        is_flagged = score > bar.flagged
        return Detection(
            score,
            flagged=is_flagged,
            strict=score > bar.strict,
            excerpt=self._excerpt(window, parts, tokens, data=data) if is_flagged else "",
            level=bar.level(score),
        )

    def thresholds(self, *, data: bool) -> Thresholds:
        return self._thresholds[data]

    def _score(self, tokens: Sequence[int], *, data: bool) -> float:
        return self._encoder.instructs(tokens, data=data, least=self._thresholds[data].least)

    def _excerpt(self, window: TokenWindow, parts: list[str], tokens: list[list[int]], *, data: bool) -> str:
        """Return the segment of a window that says most by itself, with the one after it."""
        worst = max(
            range(window.first, window.last + 1),
            key=lambda place: self._score([_START, *tokens[place], _END], data=data),
        )
        return " ".join(parts[worst : worst + 2])[:_MAX_EXCERPT]
