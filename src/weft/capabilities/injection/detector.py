"""The injection detector that is included in Weft: scores texts with networks, patterns and the surroundings.

A text is normalised and cut into segments. The networks give each segment, and each few neighbours, the probabilities
of three classes: document, request, attack. In the text of humans and agents, only an attack counts. In data a request
to the assistant counts too, the more so if it is out of place: unlike the rest, about something else, followed by code
that does harm. A text that is an attack as a whole has no rest to differ from: short data is scored as talk as well, at
a bar of its own. Patterns add to the score of the best candidates.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.capabilities.injection.model import HARMLESS, Detection
from weft.capabilities.injection.normal_form import normalise
from weft.capabilities.injection.patterns import PATTERNS, stems
from weft.capabilities.injection.segments import features, segments

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.capabilities.injection.network import Network

    Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
    Window = tuple[int, int]

# The maximum, without start and end.
_SEGMENT_TOKENS = 118
_CACHED_WORDS = 20_000
_UNKNOWN_TOKEN = 100
# A text is scored in blocks of this many segments.
_BLOCK_SEGMENTS = 150
# Maximum segments of data that may be an attack as a whole; in longer data an attack differs from the rest.
_WHOLE_SEGMENTS = 6
# Numbers of neighbouring segments that are scored together.
_WINDOWS = (1, 2, 4)
# The longest window that counts as a request in data.
_DATA_WINDOW = 2
# Windows whose patterns and surroundings are looked at: the best ones by the networks, if above the least logit.
_CANDIDATES = 8
_MIN_CANDIDATE = -1.0
_MIN_LOGIT, _MAX_LOGIT = -8.0, 10.0
_MAX_EXCERPT = 300

# What patterns add to the logit. Round numbers set by hand.
_IN_DATA = {
    "override": 2.0,
    "system": 2.0,
    "strict": 2.0,
    "conceal": 1.5,
    "assistant": 1.5,
    "notice": 1.0,
    "unbound": 1.0,
    "target": 0.7,
    "personal": -1.5,
    "table": -1.0,
}
_IN_TALK = {"override": 2.0, "system": 1.5, "leak": 1.5, "unbound": 1.0, "role": 1.0, "strict": 1.0}
_EXECUTE = 2.0
# Share of the words of a window that occur elsewhere in the block.
_OVERLAP = -3.0
# The best and the mean logit of the rest of the block: a request among requests is in place.
_BEST_ELSEWHERE, _MEAN_ELSEWHERE = -0.25, -0.3
# The networks know little of scripts other than Latin: there a pattern must confirm an attack.
_FOREIGN_SHARE = 0.3
_UNCONFIRMED = -5.0


class Thresholds(NamedTuple):
    """Scores above which a text is flagged, and above which it is so at the strict bar."""

    flagged: float
    strict: float

    @property
    def width(self) -> float:
        return self.strict - self.flagged

    def level(self, score: float) -> float:
        """Return how rare a score is among harmless texts, on the scale of the two thresholds."""
        return 2 + (score - self.flagged) / self.width


class NetworkDetector:
    """Implements ``InjectionDetector``. ``tokenize`` maps a text and a maximum to WordPiece ids with start and end."""

    def __init__(
        self,
        network: Network,
        tokenize: Callable[[str, int], list[int]],
        *,
        talk: Thresholds,
        data: Thresholds,
        talk_in_data: Thresholds,
    ) -> None:
        self._network = network
        self._word_tokens = lru_cache(_CACHED_WORDS)(lambda word: tokenize(word, _SEGMENT_TOKENS + 2)[1:-1])
        self._thresholds = {False: talk, True: data}
        self._talk_in_data = talk_in_data

    def detect(self, text: str, *, data: bool) -> Detection:
        normal = normalise(text)
        parts = [segment for one in (normal.text, *normal.decoded) for segment in segments(one)]
        blocks = (parts[start : start + _BLOCK_SEGMENTS] for start in range(0, len(parts), _BLOCK_SEGMENTS))
        is_short = len(parts) <= _WHOLE_SEGMENTS
        found = (self._detect(_Block(block), data=data, is_short=is_short) for block in blocks)
        return max(found, key=_score, default=HARMLESS)

    def thresholds(self, *, data: bool) -> Thresholds:
        return self._thresholds[data]

    def _detect(self, block: _Block, *, data: bool, is_short: bool) -> Detection:
        windows, (document, request, attack) = self._windows(block)
        talk = attack - np.logaddexp(document, request)
        if not data:
            return self._best(block, windows, talk, self._thresholds[False])
        pairs = [at for at, (start, end) in enumerate(windows) if end - start <= _DATA_WINDOW]
        request_or_attack = (np.logaddexp(request, attack) - document)[pairs]
        bar = self._thresholds[True]
        found = self._best(block, [windows[at] for at in pairs], request_or_attack, bar, data=True)
        if not is_short:
            return found
        as_talk = self._best(block, windows, talk, self._talk_in_data)
        # On the scale of data, so that the two compare.
        score = bar.flagged + (as_talk.score - self._talk_in_data.flagged) * bar.width / self._talk_in_data.width
        return replace(as_talk, score=score) if as_talk.flagged and score > found.score else found

    def _best(
        self, block: _Block, windows: list[Window], logits: Floats, bar: Thresholds, *, data: bool = False
    ) -> Detection:
        """Return what the most suspicious window says."""
        base = np.clip(logits, _MIN_LOGIT, _MAX_LOGIT)
        best = np.argsort(-base)[:_CANDIDATES].tolist()
        score, number = float(base[best[0]]), best[0]
        if score > _MIN_CANDIDATE:
            rest = _Rest(base[: len(block.segments)]) if data else None
            candidates = [one for one in best if base[one] > _MIN_CANDIDATE]
            score, number = max(
                (float(base[one]) + block.added(windows[one], float(base[one]), rest), one) for one in candidates
            )
        start, end = windows[number]
        return Detection(
            score,
            flagged=score > bar.flagged,
            strict=score > bar.strict,
            excerpt=" ".join(block.segments[start:end])[:_MAX_EXCERPT],
            patterns=block.names(start, end) if score > bar.flagged else (),
            level=bar.level(score),
        )

    def _windows(self, block: _Block) -> tuple[list[Window], Floats]:
        """Return the start and end of each window of segments, and the log probabilities of its classes, by class."""
        tokens = [self._tokens(segment) or [_UNKNOWN_TOKEN] for segment in block.segments]
        shape = np.array([features(segment) for segment in block.segments], np.float32)
        windows, filters, shapes = _windows(self._network.pooled(tokens), shape)
        return windows, self._network.log_probabilities(filters, shapes).T

    def _tokens(self, segment: str) -> list[int]:
        """Return the ids of a segment. The tokens of a word depend on nothing else, and few words are frequent."""
        tokens: list[int] = []
        for word in segment.split():
            tokens += self._word_tokens(word)
        return tokens[:_SEGMENT_TOKENS]


def _score(detection: Detection) -> float:
    return detection.score


def _windows(pooled: Floats, shape: Floats) -> tuple[list[Window], Floats, Floats]:
    """Return the start and end of each window, with the maximum of its filters and features."""
    number = len(pooled)
    windows = [(start, start + 1) for start in range(number)]
    filters, shapes = [pooled], [shape]
    for size in _WINDOWS[1:]:
        half = size // 2
        if number <= half:
            break
        last = max(1, number - size + 1)
        filters.append(_wider(filters[-1], half, last))
        shapes.append(_wider(shapes[-1], half, last))
        windows += [(start, min(number, start + size)) for start in range(last)]
    return windows, np.vstack(filters), np.vstack(shapes)


def _wider(windows: Floats, half: int, number: int) -> Floats:
    """Return the maxima of windows of twice the size; one that would end after the text is cut."""
    both = windows[:number].copy()
    later = windows[half : half + number]
    np.maximum(both[: len(later)], later, out=both[: len(later)])
    return both


class _Rest:
    """Logits of the segments of a block outside of a window."""

    def __init__(self, logits: Floats) -> None:
        self._logits = np.clip(logits, -6, 6).tolist()
        self._sum = sum(self._logits)
        best = np.clip(logits, -6, 8)
        # The best of all segments up to each, and of all from each on.
        self._before = np.maximum.accumulate(best).tolist()
        self._after = np.maximum.accumulate(best[::-1])[::-1].tolist()

    def best(self, start: int, end: int) -> float:
        """Return the best logit elsewhere, without the neighbours of the window."""
        before = self._before[start - 2] if start > 1 else -6.0
        after = self._after[end + 1] if end + 1 < len(self._after) else -6.0
        return float(max(before, after))

    def mean(self, start: int, end: int) -> float:
        others = len(self._logits) - (end - start)
        return float((self._sum - sum(self._logits[start:end])) / others) if others else -3.0


class _Block:
    """Segments of a text with their patterns and words, found when needed."""

    def __init__(self, parts: list[str]) -> None:
        self.segments = parts
        self._lower = [segment.lower() for segment in parts]
        self._found: dict[tuple[str, int], bool] = {}

    def names(self, start: int, end: int) -> tuple[str, ...]:
        return tuple(name for name in PATTERNS if self._has(name, start, end))

    def added(self, window: Window, base: float, rest: _Rest | None) -> float:
        """Return what to add to the logit of a window; ``rest`` is the rest of the block, for data."""
        return self._added_in_talk(*window, base) if rest is None else self._added_in_data(*window, rest)

    def _added_in_talk(self, start: int, end: int, base: float) -> float:
        added = sum(weight for name, weight in _IN_TALK.items() if self._has(name, start, end))
        text = " ".join(self.segments[start:end])
        is_confirmed = self._has("override", start, end) or self._has("leak", start, end)
        if not is_confirmed and not text.isascii() and _foreign_share(text) > _FOREIGN_SHARE:
            return min(added, _UNCONFIRMED - base)
        return added

    def _added_in_data(self, start: int, end: int, rest: _Rest) -> float:
        added = sum(weight for name, weight in _IN_DATA.items() if self._has(name, start, end))
        added += _EXECUTE * self._has("execute", start, min(end + 1, len(self.segments)))
        added += _OVERLAP * self._overlap(start, end)
        return added + _BEST_ELSEWHERE * rest.best(start, end) + _MEAN_ELSEWHERE * rest.mean(start, end)

    def _has(self, name: str, start: int, end: int) -> bool:
        return any(self._in(name, number) for number in range(start, end))

    def _in(self, name: str, number: int) -> bool:
        known = self._found.get((name, number))
        if known is None:
            known = self._found[name, number] = PATTERNS[name].is_in(self._lower[number])
        return known

    def _overlap(self, start: int, end: int) -> float:
        here = self._words[start:end]
        inside: set[str] = set().union(*here)
        if not inside:
            return 1.0
        return sum(self._counts[word] > sum(word in words for words in here) for word in inside) / len(inside)

    @cached_property
    def _words(self) -> list[set[str]]:
        return [stems(segment) for segment in self._lower]

    @cached_property
    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for words in self._words:
            for word in words:
                counts[word] = counts.get(word, 0) + 1
        return counts


def _foreign_share(text: str) -> float:
    letters = [letter for letter in text if letter.isalpha()]
    return sum(letter > "\u02ff" for letter in letters) / max(len(letters), 1)
