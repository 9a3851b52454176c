"""Filling pieces: as much as fits, cut where it hurts least, beginning with the end of the piece before."""

from __future__ import annotations

from bisect import bisect_right
from itertools import takewhile
from typing import TYPE_CHECKING

from weft.capabilities.indexing.chunking.boundaries import BLOCK, SECTION
from weft.capabilities.indexing.chunking.model import TextSpan
from weft.capabilities.indexing.chunking.oversized import fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.capabilities.indexing.chunking.boundaries import Label, Outline
    from weft.capabilities.indexing.chunking.model import ChunkingOptions

# How full a piece must be before it ends at a better place than the last that fits.
_FULL_ENOUGH = 0.5
_FULL_ENOUGH_FOR_SECTION = 0.2
_LONGEST_HEADING = 500
_MOST_SPEAKERS = 12


def pieces(text: str, outline: Outline, cutting: ChunkingOptions, count: Callable[[str], int]) -> list[TextSpan]:
    """Return a text in pieces that fit, in order, covering all but white space."""
    packing = _Packing(text, outline, cutting, count)
    return [piece for window in packing.windows() if (piece := packing.piece(*window)) is not None]


class _Packing:
    """Places are known by their index; the last index is the end of the text."""

    def __init__(self, text: str, outline: Outline, cutting: ChunkingOptions, count: Callable[[str], int]) -> None:
        self._text = text
        self._outline = outline
        self._count = count
        self._limit = cutting.chunk_tokens
        self._overlap = min(cutting.overlap_tokens, cutting.chunk_tokens // 2)
        starts, self._strengths = fitting(text, outline, self._limit, count)
        self._starts = [*starts, len(text)]
        self._last = len(starts)
        self._characters_per_token = 4.0

    def windows(self) -> Iterator[tuple[int, int]]:
        """Yield the places between which pieces lie."""
        first = fresh = 0
        while fresh < self._last:
            while first < fresh and not self._fits(first, fresh + 1):
                first += 1
            cut = self._best_cut(first, fresh, self._furthest(first, fresh + 1))
            # Some counters find more in a part than in the whole.
            while cut > fresh + 1 and not self._fits(first, cut):
                cut -= 1
            yield first, cut
            first, fresh = self._overlap_start(first, cut), cut

    def piece(self, first: int, cut: int) -> TextSpan | None:
        start, end = self._trimmed(first, cut)
        if start == end:
            return None
        tokens = self._count(self._text[start:end])
        self._characters_per_token = (end - start) / max(tokens, 1)
        labels = self._outline.labels_of(start, end)
        return TextSpan(
            start=start,
            end=end,
            tokens=tokens,
            kind=_kind(labels),
            heading=_heading(labels, ranged=self._outline.naming == "range"),
            speaker=_speakers(labels),
            timestamp=next((label.timestamp for label in labels if label.timestamp is not None), None),
        )

    def _furthest(self, first: int, least: int) -> int:
        """Return the last place up to which a piece fits; it fits up to ``least``."""
        reach = self._starts[first] + self._limit * self._characters_per_token
        guess = max(least, min(bisect_right(self._starts, reach) - 1, self._last))
        return _last_where(lambda place: self._fits(first, place), least, guess, self._last)

    def _best_cut(self, first: int, fresh: int, end: int) -> int:
        """Return the strongest place at which the piece is full enough; what is left of a text is cut only for more."""
        if end == self._last and not self._leaves_section(first, fresh):
            return end
        begin = self._starts[first]
        length = self._starts[end] - begin
        best, best_strength = end, -1 if end < self._last else BLOCK
        for place in range(min(end, self._last - 1), fresh, -1):
            strength = self._strengths[place]
            enough = _FULL_ENOUGH if strength < SECTION else _FULL_ENOUGH_FOR_SECTION
            if strength > best_strength and self._starts[place] - begin >= enough * length:
                best, best_strength = place, strength
        return best

    def _leaves_section(self, first: int, fresh: int) -> bool:
        """Say whether the rest of a text holds a section above the one it begins with; a whole text may hold all."""
        strongest = max(self._strengths[fresh + 1 :], default=BLOCK)
        return first > 0 and strongest >= SECTION and strongest > self._strengths[fresh]

    def _overlap_start(self, first: int, cut: int) -> int:
        """Return where the next piece begins: at the cut, or before it by as much as may be repeated."""
        if not self._overlap or cut == self._last:
            return cut
        earliest = cut
        while earliest > first + 1 and self._strengths[earliest] < SECTION and cut - earliest < self._overlap:
            earliest -= 1
        repeated = _last_where(
            lambda back: self._tokens(cut - back, cut) <= self._overlap, 0, min(1, cut - earliest), cut - earliest
        )
        return cut - repeated

    def _fits(self, first: int, end: int) -> bool:
        return self._tokens(first, end) <= self._limit

    def _tokens(self, first: int, end: int) -> int:
        return self._count(self._text[self._starts[first] : self._starts[end]].strip())

    def _trimmed(self, first: int, cut: int) -> tuple[int, int]:
        raw = self._text[self._starts[first] : self._starts[cut]]
        start = self._starts[first] + len(raw) - len(raw.lstrip())
        return start, start + len(raw.strip())


def _last_where(holds: Callable[[int], bool], least: int, guess: int, most: int) -> int:
    """Return the last number from ``least`` to ``most`` for which it holds, looking near the guess first.

    It holds for ``least``, and once it does not, for none beyond.
    """
    step = 1
    if holds(guess):
        least = guess
        while least < most and holds(min(least + step, most)):
            least, step = min(least + step, most), step * 2
        fails = min(least + step, most + 1)
    else:
        fails = guess
        while fails - step > least and not holds(fails - step):
            fails, step = fails - step, step * 2
        least = max(least, fails - step)
    while fails - least > 1:
        middle = (least + fails) // 2
        least, fails = (middle, fails) if holds(middle) else (least, middle)
    return least


def _kind(labels: list[Label]) -> str:
    kinds = {label.kind for label in labels if label.kind}
    return kinds.pop() if len(kinds) == 1 else "prose"


def _heading(labels: list[Label], *, ranged: bool) -> str:
    paths = [" > ".join(label.path) for label in labels if label.path] if ranged else []
    if len(set(paths)) > 1:
        return f"{paths[0]} to {paths[-1]}"
    return paths[0] if paths else " > ".join(_common([label.path for label in labels]))[:_LONGEST_HEADING]


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return what all paths begin with: if the first and the last in order do, so do those between."""
    lowest, highest = min(paths, default=()), max(paths, default=())
    same = takewhile(lambda pair: pair[0] == pair[1], zip(lowest, highest, strict=False))
    return tuple(name for name, _ in same)


def _speakers(labels: list[Label]) -> str:
    names = dict.fromkeys(label.speaker for label in labels if label.speaker)
    return ", ".join(list(names)[:_MOST_SPEAKERS])
