"""Detectors: regular expressions plus checks that find secrets and personal data in text.

The text is untrusted, so no pattern may backtrack without bound: every repetition has an upper limit, or cannot start
inside a run of its own characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weftline.kernel.hidden_text import encoded_passages, readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_UNCOVERED = re.compile(rb"\0+")


class DetectedSpan(NamedTuple):
    """A detected value in a text. Spans with equal ``label`` and ``identity`` hold the same value."""

    start: int
    end: int
    label: str
    identity: str


class Detector(Protocol):
    """Finds one kind of value. Runs only on texts with any of its ``hints`` (lower case) and ``min_digits`` digits."""

    @property
    def label(self) -> str: ...

    @property
    def hints(self) -> tuple[str, ...]: ...

    @property
    def min_digits(self) -> int: ...

    def spans(self, text: str) -> Iterator[DetectedSpan]: ...


class PatternDetector(NamedTuple):
    """Detects the group ``value`` of a pattern where ``is_valid`` accepts the match.

    ``normalise`` removes differences of notation, so that the same value gets the same identity. ``gate`` is a fast
    pattern that is in every text with a match: it starts with a character, while most patterns start with a condition.
    """

    label: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    is_valid: Callable[[re.Match[str]], bool] = lambda _: True
    normalise: Callable[[str], str] = str
    min_digits: int = 0
    gate: re.Pattern[str] | None = None

    def spans(self, text: str) -> Iterator[DetectedSpan]:
        if self.gate is not None and not self.gate.search(text):
            return
        for match in self.pattern.finditer(text):
            if self.is_valid(match):
                start, end = match.span("value")
                yield DetectedSpan(start, end, self.label, self.normalise(text[start:end]))


class Scanner:
    """Runs detectors over a text. Their order is their priority where spans overlap."""

    def __init__(self, detectors: Iterable[Detector]) -> None:
        self._detectors = tuple(detectors)
        self._hints = [(hint, index) for index, detector in enumerate(self._detectors) for hint in detector.hints]

    @property
    def is_empty(self) -> bool:
        return not self._detectors

    def spans(self, text: str) -> list[DetectedSpan]:
        """Return the detected spans in text order, without overlaps."""
        found, hidden = self._plain_spans(text), dict.fromkeys(self._hidden_spans(text))
        if len(found) + len(hidden) < 2:  # noqa: PLR2004 - two are needed to overlap
            return [*found, *hidden]
        covered = bytearray(len(text))
        accepted = []
        for span in found:
            if covered.find(1, span.start, span.end) < 0:
                covered[span.start : span.end] = b"\1" * (span.end - span.start)
                accepted.append(span)
        for span in hidden:
            # What hides a part of a value may leave the rest of it in sight.
            for gap in _UNCOVERED.finditer(bytes(covered[span.start : span.end])):
                start, end = span.start + gap.start(), span.start + gap.end()
                covered[start:end] = b"\1" * (end - start)
                accepted.append(span._replace(start=start, end=end))
        return sorted(accepted)

    def _plain_spans(self, text: str) -> list[DetectedSpan]:
        return [span for detector in self._hinted(text) for span in detector.spans(text)]

    def _hidden_spans(self, text: str) -> Iterator[DetectedSpan]:
        """Yield the spans of values in disguise, escaped or spaced out, and of passages that hold one, encoded."""
        for shown, places in readings(text):
            if shown is not text:
                for span in self._plain_spans(shown):
                    yield span._replace(start=places[span.start], end=places[span.end])
            for passage in encoded_passages(shown):
                for span in self._plain_spans(passage.text):
                    yield span._replace(start=places[passage.start], end=places[passage.end])

    def _hinted(self, text: str) -> list[Detector]:
        """Return the detectors whose hints occur in the text: most texts hint at very few."""
        lowered = text.lower()
        hinted = sorted({index for hint, index in self._hints if hint in lowered})
        digits = sum(map(text.count, "0123456789"))
        return [detector for detector in map(self._detectors.__getitem__, hinted) if detector.min_digits <= digits]


def not_after(characters: str) -> str:
    r"""Return a pattern prefix: no match directly after these characters (a character class without its brackets).

    An escaped line break such as ``\n`` ends in a letter, but counts as a break.
    """
    return rf"(?:(?<![\\{characters}])|(?<=\\[nrt]))"


def digits_of(text: str) -> str:
    return "".join(character for character in text if character.isdigit())
