"""Breaking what is too large for one piece: by lines, then sentences, then words, then anywhere."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING

from weft.capabilities.indexing.chunking.boundaries import CHARACTER
from weft.capabilities.indexing.chunking.sentences import line_ends, sentence_ends, word_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.capabilities.indexing.chunking.boundaries import Outline

# No counter we know finds more than four tokens in a character: one for each of its bytes.
MOST_TOKENS_PER_CHARACTER = 4
_WAYS = (line_ends, sentence_ends, word_ends)
_JOINERS = "\u200d\ufe0f"


def fitting(text: str, outline: Outline, limit: int, count: Callable[[str], int]) -> tuple[list[int], list[int]]:
    """Return the places of an outline with more in between, so that all that lies between two fits."""
    starts: list[int] = []
    strengths: list[int] = []
    breaking = _Breaking(text, limit, count)
    edges = [*outline.starts, len(text)]
    if not outline.starts or edges[0] > 0:
        edges.insert(0, 0)
    wanted = [CHARACTER] * (len(edges) - 1 - len(outline.starts)) + outline.strengths
    for (start, end), strength in zip(pairwise(edges), wanted, strict=True):
        starts.append(start)
        strengths.append(strength)
        if not breaking.fits(start, end):
            for at, weaker in breaking.places(start, end):
                starts.append(at)
                strengths.append(weaker)
    return starts, strengths


class _Breaking:
    """Finds further places in what does not fit."""

    def __init__(self, text: str, limit: int, count: Callable[[str], int]) -> None:
        self._text = text
        self._limit = limit
        self._count = count

    def fits(self, start: int, end: int) -> bool:
        surely = (end - start) * MOST_TOKENS_PER_CHARACTER <= self._limit
        return surely or self._count(self._text[start:end].strip()) <= self._limit

    def places(self, start: int, end: int, way: int = 0) -> Iterator[tuple[int, int]]:
        """Yield places behind start, each with its strength, until all between them fits."""
        if way == len(_WAYS):
            yield from self._anywhere(start, end)
            return
        strength = CHARACTER
        for at, next_strength in (*_WAYS[way](self._text, start, end), (end, CHARACTER)):
            if strength:
                yield start, strength
            if not self.fits(start, at):
                yield from self.places(start, at, way + 1)
            start, strength = at, next_strength

    def _anywhere(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        slice_length = max(1, self._limit // (2 * MOST_TOKENS_PER_CHARACTER))
        while end - start > slice_length:
            start = self._before_no_mark(start + slice_length, min(start + 2 * slice_length, end))
            if start < end:
                yield start, CHARACTER

    def _before_no_mark(self, at: int, latest: int) -> int:
        """Return the next place that does not part a character from its marks, if there is one near."""
        for place in range(at, latest):
            character = self._text[place]
            if character.isascii() or not (unicodedata.category(character)[0] == "M" or character in _JOINERS):
                return place
        return at
