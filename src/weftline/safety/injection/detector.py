"""The injection detector that is included in Weftline: an encoder reads a text in windows, and the worst window counts.

A text is normalised and cut into segments, and neighbouring segments are read together. In the text of humans and
agents only the wording of an attack counts: they give each other orders. In data any instruction to its reader is out
of place. The encoder was trained for both (evals/classifier).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weftline.safety.injection.model import HARMLESS, Detection
from weftline.safety.injection.normal_form import normalise
from weftline.safety.injection.segments import segments
from weftline.safety.injection.windows import MAX_TOKENS, token_windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.safety.injection.windows import TokenWindow

_UNKNOWN, _START, _END = 100, 101, 102
_MAX_EXCERPT = 300
# Segments of a suspicious window that are read by themselves, and what they must exceed a bar by: without their
# neighbours harmless ones score higher too. Measured on an author left out: no more false alarms, and more is caught.
_MAX_ALONE, _MARGIN_ALONE = 12, 4.0
# Data of one sentence gives one occasion for a false alarm, a page gives hundreds: its bar is lower. Measured on
# texts of up to 160 characters.
_SINGLE_SENTENCE = 1.0
_CODE = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
_FEW_DIGITS, _FEW_SIGNS, _LONG = 10, 5, 40
_FIELD_NAME = re.compile(r"(?:^|\s)[\w.-]{1,40}:\s")
# Lower than any logit: read to the end.
_WHATEVER = -100.0
_NOT_LETTERS = re.compile(r"[\W\d_]+")
# A repeated sentence has words; headings and lines of tables that recur are not read again.
_MIN_BLANKS, _MAX_REPEATED = 3, 12
# Different segments that are compared with each other.
_MAX_COMPARED = 40


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

    def __init__(self, encoder: Callable[[], Encoder], *, talk: Thresholds, data: Thresholds) -> None:
        """Judge by an encoder, which is asked for with each text: it may have been released meanwhile."""
        self._encoder = encoder
        self._thresholds = {False: talk, True: data}

    def detect(self, text: str, *, data: bool) -> Detection:
        normal = normalise(text)
        found = [segment for each in (normal.text, *normal.decoded) for segment in segments(each)]
        parts = [segment for segment in found if not _is_code(segment)]
        if not parts:
            return HARMLESS
        encoder = self._encoder()
        least = self._thresholds[data].least
        distinct, repeated = _without_copies(parts)
        readings = [_Reading.of(encoder, each) for each in (distinct, *repeated)]
        scored = [
            (encoder.instructs(window.tokens, data=data, least=least), window, reading)
            for reading in readings
            for window in token_windows(reading.tokens)
        ]
        score, window, reading = max(scored, key=lambda each: each[0])
        bar = self._thresholds[data]
        if least <= score <= bar.strict:
            score = max(score, _alone(encoder, window, reading, data=data, least=least) - _MARGIN_ALONE)
        if data and len(parts) == 1:
            score += _SINGLE_SENTENCE
        is_flagged = score > bar.flagged
        return Detection(
            score,
            flagged=is_flagged,
            strict=score > bar.strict,
            excerpt=_excerpt(encoder, window, reading, data=data) if is_flagged else "",
            level=bar.level(score),
        )

    def thresholds(self, *, data: bool) -> Thresholds:
        return self._thresholds[data]


def _is_code(segment: str) -> bool:
    """Tell whether a segment is noise: a few signs again and again, or a key, a hash or encoded content.

    What is encoded was decoded; by itself the encoder has no opinion about it.
    """
    if len(segment) > _LONG and len(set(segment)) < _FEW_SIGNS:
        return True
    return _CODE.fullmatch(segment) is not None and _FEW_DIGITS * sum(map(str.isdigit, segment)) > len(segment)


class _Reading(NamedTuple):
    """Segments that are read together, with their tokens."""

    parts: Sequence[str]
    tokens: list[list[int]]

    @classmethod
    def of(cls, encoder: Encoder, parts: Sequence[str]) -> _Reading:
        return cls(parts, [encoder.tokens(part)[: MAX_TOKENS - 2] or [_UNKNOWN] for part in parts])


def _without_copies(parts: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return each segment once; and the sentences of which there were copies, by themselves and with the next one.

    An encoder that was trained on single attacks does not know a window full of copies, and harmless sentences
    between them thin out each one. So copies count once, and what was repeated is read alone too.
    """
    if len(parts) == 1:
        return [*parts], []
    first: dict[str, str] = {}
    copies: Counter[str] = Counter()
    for part in parts:
        # Without digits, signs and case: numbered copies are copies.
        key = _NOT_LETTERS.sub(" ", part.casefold()).strip() or part
        first.setdefault(key, part)
        copies[key] += 1
    if len(first) <= _MAX_COMPARED:
        # A copy with a few words before or after it is one too.
        for key in first:
            within = next((other for other in first if other is not key and _is_within(other, key)), None)
            copies[within or key] += within is not None
    if max(copies.values()) == 1:
        return [*parts], []
    chosen = [key for key, count in copies.most_common() if count > 1 and key.count(" ") >= _MIN_BLANKS]
    repeated = set(chosen[:_MAX_REPEATED])
    alone = [[first[key]] for key in first if key in repeated]
    pairs = [[first[one], first[other]] for one, other in pairwise(first) if {one, other} <= repeated]
    return [*first.values()], alone + pairs


def _is_within(sentence: str, other: str) -> bool:
    return sentence.count(" ") >= _MIN_BLANKS and sentence in other


def _alone(encoder: Encoder, window: TokenWindow, reading: _Reading, *, data: bool, least: float) -> float:
    """Return the score of the worst sentence or field of a window by itself: harmless ones around it may hide it.

    Without the names of fields, which make an order look like a record.
    """
    parts = reading.parts[window.first : window.last + 1]
    texts = {text for part in parts for text in (part, *_FIELD_NAME.split(part)) if text}
    if len(texts) == 1:
        return least
    # The longest say most.
    chosen = sorted(texts, key=len, reverse=True)[:_MAX_ALONE]
    tokens = [encoder.tokens(text)[: MAX_TOKENS - 2] or [_UNKNOWN] for text in chosen]
    return max(encoder.instructs([_START, *each, _END], data=data, least=least) for each in tokens)


def _excerpt(encoder: Encoder, window: TokenWindow, reading: _Reading, *, data: bool) -> str:
    """Return the segment of a window that says most by itself, with the one after it."""
    parts, tokens = reading
    worst = max(
        range(window.first, window.last + 1),
        key=lambda place: encoder.instructs([_START, *tokens[place], _END], data=data, least=_WHATEVER),
    )
    return " ".join(parts[worst : worst + 2])[:_MAX_EXCERPT]
