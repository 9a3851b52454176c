"""The part of a message that a query matched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rapidfuzz import fuzz, process

from weft.capabilities.search.index import LEAST_ALIKE, SHORTEST_FUZZY
from weft.capabilities.search.words import TOKEN, stem, telling_words, words

_LONGEST = 200
_ELLIPSIS = "…"
_ROOM = _LONGEST - 2 * len(_ELLIPSIS)
# How far a cut may move so as not to go through a word.
_REACH = 30
_LONGEST_PART = 64
_GAP = re.compile(r"\s+")


class _Spot(NamedTuple):
    """A place in the text, and the word of the query that stands there."""

    start: int
    end: int
    root: str


def preview(content: str, query: str) -> str:
    """Return the piece of the content with the most of the query in it; the whole where that is short."""
    if len(content) <= _LONGEST:
        return content
    spots = list(_spots(content, query))
    return _cut(content, *(_fullest(spots) if spots else _nearest(content, query)))


def _spots(content: str, query: str) -> Iterator[_Spot]:
    wanted = {stem(word): word for word in telling_words(query)}
    known: dict[str, str | None] = {}
    for match in TOKEN.finditer(content):
        token = match.group()
        if token not in known:
            known[token] = _meant(token, wanted)
        if root := known[token]:
            yield _Spot(match.start(), match.end(), root)


def _meant(token: str, wanted: dict[str, str]) -> str | None:
    """Return the stem of the query that this token holds, goes on from, or is spelled like."""
    for word in words(token):
        root = stem(word)
        if root in wanted:
            return root
        if len(word) < SHORTEST_FUZZY:
            continue
        for asked in wanted:
            if len(asked) >= SHORTEST_FUZZY and root.startswith(asked):
                return asked
        if alike := process.extractOne(word, wanted, scorer=fuzz.ratio, score_cutoff=LEAST_ALIKE):
            return str(alike[2])
    return None


def _fullest(spots: Sequence[_Spot]) -> tuple[int, int]:
    """Return where the piece begins and ends that holds the most different words of the query."""
    best, most, left = (0, 0), 0, 0
    inside: Counter[str] = Counter()
    for spot in spots:
        inside[spot.root] += 1
        while spot.end - spots[left].start > _ROOM and spots[left] is not spot:
            inside[spots[left].root] -= 1
            left += 1
        different = len(+inside)
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
