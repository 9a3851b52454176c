"""Making one segment of several. Arrays of millions are gone through a part at a time, to take little memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from weft.search_index.ivf import FEWEST_CLUSTERED, arranged, clustered, unclustered
from weft.search_index.quantized_vectors import Vectors, no_vectors
from weft.search_index.segment import Facts, Segment, VisibilityGroup, Words
from weft.search_index.segment_builder import line_by_line

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Bits = NDArray[np.bool_]
    Codes = NDArray[np.uint32]

H = TypeVar("H", bound="Hashable")
_POSTINGS_AT_ONCE = 2**21
_VECTORS_AT_ONCE = 2**15
_NOWHERE = -1


def merged(segments: Sequence[Segment], alive: Sequence[Bits], *, to_stay: bool) -> Segment:
    """Make one segment of those rows of several that are alive; put vectors in clusters if it is to stay for long."""
    numbers = np.concatenate([segment.facts.number[kept] for segment, kept in zip(segments, alive, strict=True)])
    order = np.argsort(numbers, kind="stable")
    moved = _moved(alive, order)
    facts, groups, speakers = _facts(segments, alive, order)
    words = _words([_Postings(segment.words, target) for segment, target in zip(segments, moved, strict=True)])
    if not np.array_equal(order, np.arange(len(order))):
        words = _in_row_order(words)
    return Segment(facts, words, _vectors(segments, moved, len(order), to_stay=to_stay), groups, speakers)


def _moved(alive: Sequence[Bits], order: NDArray[np.intp]) -> list[NDArray[np.int64]]:
    """Return for each segment where its rows go; -1 for those that go nowhere."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    moved, before = [], 0
    for kept in alive:
        target = np.full(len(kept), _NOWHERE, np.int64)
        count = int(np.count_nonzero(kept))
        target[kept] = place[before : before + count]
        moved.append(target)
        before += count
    return moved


def _facts(
    segments: Sequence[Segment], alive: Sequence[Bits], order: NDArray[np.intp]
) -> tuple[Facts, tuple[VisibilityGroup, ...], tuple[str, ...]]:
    def joined(columns: Iterable[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([column[kept] for column, kept in zip(columns, alive, strict=True)])[order]

    def renumbered(codes: str, names: str) -> tuple[NDArray[Any], NDArray[Any]]:
        names_of_rows = (getattr(segment.facts, names)[getattr(segment.facts, codes)] for segment in segments)
        unique, places = np.unique(joined(names_of_rows), return_inverse=True)
        return places.astype(np.uint32), unique

    columns = {
        field.name: joined(getattr(segment.facts, field.name) for segment in segments)
        for field in fields(Facts)
        if field.name not in {"group", "line", "item", "speaker", "order", "lines", "items"}
    }
    columns["line"], columns["lines"] = renumbered("line", "lines")
    columns["order"] = line_by_line(columns["line"], columns["position"])
    columns["item"], columns["items"] = renumbered("item", "items")
    group_codes, groups = _recoded([segment.groups for segment in segments])
    columns["group"] = joined(codes[segment.facts.group] for codes, segment in zip(group_codes, segments, strict=True))
    speaker_codes, speakers = _recoded([segment.speakers for segment in segments])
    columns["speaker"] = joined(
        codes[segment.facts.speaker] for codes, segment in zip(speaker_codes, segments, strict=True)
    )
    return Facts(**columns), groups, speakers


def _recoded(lists: Sequence[tuple[H, ...]]) -> tuple[list[Codes], tuple[H, ...]]:
    """Return one list of what occurs in several, and for each of these where its values went."""
    known: dict[H, int] = {}
    codes = [np.array([known.setdefault(value, len(known)) for value in values], np.uint32) for values in lists]
    return codes, tuple(known)


class _Stretch(NamedTuple):
    """The postings of some terms that follow each other: how many each has, which rows, how often."""

    terms: slice
    sizes: NDArray[np.int64]
    rows: NDArray[np.int64]
    counts: NDArray[np.uint8]


class _Postings:
    """What a segment's words come to when its rows have moved."""

    def __init__(self, words: Words, moved: NDArray[np.int64]) -> None:
        self._words = words
        self._moved = moved
        self.sizes = np.empty(len(words.terms), np.int64)
        for stretch in self.stretches():
            self.sizes[stretch.terms] = stretch.sizes
        self.used = np.flatnonzero(self.sizes)
        self.terms = words.terms[self.used]

    def stretches(self) -> Iterator[_Stretch]:
        """Yield the postings that are left, a few millions at a time."""
        starts, last = self._words.starts, len(self._words.terms)
        first = 0
        while first < last:
            end = int(np.searchsorted(starts, starts[first] + _POSTINGS_AT_ONCE, side="right")) - 1
            end = min(max(end, first + 1), last)
            yield self._stretch(first, end)
            first = end

    def _stretch(self, first: int, end: int) -> _Stretch:
        starts = self._words.starts[first : end + 1]
        rows = self._moved[self._words.rows[starts[0] : starts[-1]]]
        kept = rows >= 0
        left = np.add.reduceat(kept, starts[:-1] - starts[0], dtype=np.int64)
        return _Stretch(slice(first, end), left, rows[kept], self._words.counts[starts[0] : starts[-1]][kept])


def _words(parts: Sequence[_Postings]) -> Words:
    terms = np.unique(np.concatenate([part.terms for part in parts]))
    held = np.zeros(len(terms) + 1, np.int64)
    for part in parts:
        held[np.searchsorted(terms, part.terms) + 1] += part.sizes[part.used]
    starts = np.cumsum(held)
    rows, counts = np.empty(starts[-1], np.uint32), np.empty(starts[-1], np.uint8)
    free = starts[:-1].copy()
    for part in parts:
        place = np.zeros(len(part.sizes), np.intp)
        place[part.used] = np.searchsorted(terms, part.terms)
        for stretch in part.stretches():
            if not len(stretch.rows):
                continue
            inside = np.cumsum(stretch.sizes) - stretch.sizes
            target = np.repeat(free[place[stretch.terms]] - inside, stretch.sizes) + np.arange(len(stretch.rows))
            rows[target], counts[target] = stretch.rows, stretch.counts
        free[place[part.used]] += part.sizes[part.used]
    return Words(terms, starts, rows, counts)


def _in_row_order(words: Words) -> Words:
    """Return postings with the rows of each term in order, which they are not where segments overlapped."""
    term = np.repeat(np.arange(len(words.terms), dtype=np.int64), np.diff(words.starts))
    order = np.argsort(term << 32 | words.rows, kind="stable")
    return Words(words.terms, words.starts, words.rows[order], words.counts[order])


def _vectors(segments: Sequence[Segment], moved: Sequence[NDArray[np.int64]], size: int, *, to_stay: bool) -> Vectors:
    dimensions = _most_common_dimensions([segment.vectors for segment in segments])
    parts = [
        (segment.vectors, target[segment.vectors.rows])
        for segment, target in zip(segments, moved, strict=True)
        if segment.vectors.dimensions == dimensions and len(segment.vectors.rows)
    ]
    rows = np.concatenate([np.empty(0, np.int64), *(places[places >= 0] for _, places in parts)])
    if not len(rows):
        return no_vectors(size)
    codes = np.concatenate([vectors.codes[places >= 0] for vectors, places in parts])
    scale = np.concatenate([vectors.scale[places >= 0] for vectors, places in parts])
    clusters = clustered(codes, scale) if to_stay and len(codes) >= FEWEST_CLUSTERED else unclustered(codes)
    halves = _halves(parts, clusters.order, dimensions)
    return arranged(codes, scale, rows.astype(np.uint32), size, clusters, halves)


def _most_common_dimensions(given: Iterable[Vectors]) -> int:
    held: Counter[int] = Counter()
    for vectors in given:
        held[vectors.dimensions] += len(vectors.rows)
    return max(held, key=held.__getitem__, default=0)


def _halves(
    parts: Sequence[tuple[Vectors, NDArray[np.int64]]], order: NDArray[np.intp], dimensions: int
) -> NDArray[np.float16]:
    """Return the halves in a new order, without ever having them all in the old one."""
    halves = np.empty((len(order), dimensions), np.float16)
    slot = np.empty(len(order), np.intp)
    slot[order] = np.arange(len(order))
    before = 0
    for vectors, places in parts:
        kept = np.flatnonzero(places >= 0)
        for start in range(0, len(kept), _VECTORS_AT_ONCE):
            some = kept[start : start + _VECTORS_AT_ONCE]
            halves[slot[before : before + len(some)]] = vectors.halves[some]
            before += len(some)
    return halves
