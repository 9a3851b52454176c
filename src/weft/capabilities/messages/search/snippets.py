"""The part of a message that a query matched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rapidfuzz import fuzz, process

from weft.capabilities.indexing.text_analysis import TOKEN, query_words, stem, words
from weft.capabilities.messages.search.inverted_index import LEAST_ALIKE, SHORTEST_FUZZY

_LONGEST = 200
_ELLIPSIS = "…"
_ROOM = _LONGEST - 2 * len(_ELLIPSIS)
# How far a cut may move so as not to go through a word.
_REACH = 30
_LONGEST_PART = 64
# Comparing spellings costs as much as there is text, once for each word: these are looked for, the first of the query.
_MOST_MISSPELT = 32
_GAP = re.compile(r"\s+")


class _Spot(NamedTuple):
    """A place in the text, and the word of the query that stands there."""

    start: int
    end: int
    root: str


def preview(content: str, query: str) -> str:
    """Return the piece of the content with the most of the query in it; the whole where that is short."""
    return Previews(query).of(content)


class Previews:
    """What one query is shown to have matched, in any number of messages."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._wanted = {stem(word): word for word in query_words(query)}
        self._beginnings = {root for root in self._wanted if len(root) >= SHORTEST_FUZZY}
        self._lengths = sorted(set(map(len, self._beginnings)))

    def of(self, content: str) -> str:
        """Return the piece of the content with the most of the query in it; the whole where that is short."""
        if len(content) <= _LONGEST:
            return content
        spots = self._spots(content)
        return _cut(content, *(_fullest(spots) if spots else _nearest(content, self._query)))

    def _spots(self, content: str) -> list[_Spot]:
        matches = list(TOKEN.finditer(content))
        meant = self._meant({match.group() for match in matches})
        return [
            _Spot(match.start(), match.end(), root)
            for match in matches
            if (root := meant.get(match.group())) is not None
        ]

    def _meant(self, tokens: set[str]) -> dict[str, str]:
        """Return which of these tokens hold a stem of the query, go on from one or are spelled like one, and which."""
        meant: dict[str, str] = {}
        others: dict[str, str] = {}
        for token in tokens:
            for word in words(token):
                if root := self._asked(stem(word)):
                    meant[token] = root
                    break
                if len(word) >= SHORTEST_FUZZY:
                    others[word] = token
        for word, root in self._misspelt(others, set(meant.values())):
            meant.setdefault(others[word], root)
        return meant

    def _asked(self, root: str) -> str | None:
        if root in self._wanted:
            return root
        return next((root[:length] for length in self._lengths if root[:length] in self._beginnings), None)

    def _misspelt(self, others: dict[str, str], found: set[str]) -> Iterator[tuple[str, str]]:
        """Yield the words that are spelled like a word of the query that is not there itself."""
        missing = [root for root in self._wanted if root not in found]
        for root in missing[:_MOST_MISSPELT]:
            asked = self._wanted[root]
            for word, _, _ in process.extract(
                asked, others.keys(), scorer=fuzz.ratio, score_cutoff=LEAST_ALIKE, limit=None
            ):
                yield word, root


def _fullest(spots: Sequence[_Spot]) -> tuple[int, int]:
    """Return where the piece begins and ends that holds the most different words of the query."""
    best, most, left, different = (0, 0), 0, 0, 0
    inside: Counter[str] = Counter()
    for spot in spots:
        different += not inside[spot.root]
        inside[spot.root] += 1
        while spot.end - spots[left].start > _ROOM and spots[left] is not spot:
            inside[spots[left].root] -= 1
            different -= not inside[spots[left].root]
            left += 1
        if different > most:
            best, most = (spots[left].start, spot.end), different
    return best


def _nearest(content: str, query: str) -> tuple[int, int]:
    """Return where the content is most like the query as it is written; its beginning where nothing is."""
    if len(query) > _LONGEST_PART:
        return 0, 0
    found = fuzz.partial_ratio_alignment(query.lower(), content.lower(), score_cutoff=LEAST_ALIKE)
    return (found.dest_start, min(found.dest_end, len(content))) if found else (0, 0)


def _cut(content: str, first: int, last: int) -> str:
    """Return a piece around what was found, cut between words where that is near."""
    # What led to the matched words is worth showing as much as what follows.
    start = max(0, min((first + last - _ROOM) // 2, len(content) - _ROOM))
    end = start + _ROOM
    if start and (gap := _GAP.search(content, start, max(start, min(first, start + _REACH)))):
        start = gap.end()
    if end < len(content):
        end = max((gap.start() for gap in _GAP.finditer(content, max(last, end - _REACH), end)), default=end)
    return f"{_ELLIPSIS if start else ''}{content[start:end]}{_ELLIPSIS if end < len(content) else ''}"
