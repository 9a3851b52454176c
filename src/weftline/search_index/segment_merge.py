"""Merges segments, in batches to limit memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from weftline.search_index.ivf import MIN_CLUSTERED, arrange_vectors, cluster_vectors, unclustered
from weftline.search_index.quantized_vectors import Vectors, no_vectors
from weftline.search_index.segment import RowColumns, Segment, TermPostings, VisibilityGroup
from weftline.search_index.segment_builder import line_order

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Bits = NDArray[np.bool_]
    Codes = NDArray[np.uint32]

H = TypeVar("H", bound="Hashable")
_POSTINGS_BATCH_SIZE = 2**21
_VECTORS_BATCH_SIZE = 2**15
_DELETED = -1


def merge_segments(segments: Sequence[Segment], live: Sequence[Bits], *, cluster: bool) -> Segment:
    """Merge the live rows of segments; cluster the vectors if ``cluster``."""
    numbers = np.concatenate([segment.columns.number[kept] for segment, kept in zip(segments, live, strict=True)])
    order = np.argsort(numbers, kind="stable")
    new_rows = _new_rows(live, order)
    row_columns, groups, speakers = _columns(segments, live, order)
    postings = _postings(
        [_Postings(segment.postings, target) for segment, target in zip(segments, new_rows, strict=True)]
    )
    if not np.array_equal(order, np.arange(len(order))):
        postings = _in_row_order(postings)
    return Segment(row_columns, postings, _vectors(segments, new_rows, len(order), cluster=cluster), groups, speakers)


def _new_rows(live: Sequence[Bits], order: NDArray[np.intp]) -> list[NDArray[np.int64]]:
    """Return the new rows of each segment's rows; -1 for deleted ones."""
    index = np.empty(len(order), np.int64)
    index[order] = np.arange(len(order))
    new_rows, before = [], 0
    for kept in live:
        target = np.full(len(kept), _DELETED, np.int64)
        count = int(np.count_nonzero(kept))
        target[kept] = index[before : before + count]
        new_rows.append(target)
        before += count
    return new_rows


def _columns(
    segments: Sequence[Segment], live: Sequence[Bits], order: NDArray[np.intp]
) -> tuple[RowColumns, tuple[VisibilityGroup, ...], tuple[str, ...]]:
    def joined(columns: Iterable[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([column[kept] for column, kept in zip(columns, live, strict=True)])[order]

    def renumbered(codes: str, names: str) -> tuple[NDArray[Any], NDArray[Any]]:
        names_of_rows = (getattr(segment.columns, names)[getattr(segment.columns, codes)] for segment in segments)
        unique, places = np.unique(joined(names_of_rows), return_inverse=True)
        return places.astype(np.uint32), unique

    columns = {
        field.name: joined(getattr(segment.columns, field.name) for segment in segments)
        for field in fields(RowColumns)
        if field.name not in {"group", "line", "item", "speaker", "order", "lines", "items"}
    }
    columns["line"], columns["lines"] = renumbered("line", "lines")
    columns["order"] = line_order(columns["line"], columns["position"])
    columns["item"], columns["items"] = renumbered("item", "items")
    group_codes, groups = _merged_dictionary([segment.groups for segment in segments])
    columns["group"] = joined(
        codes[segment.columns.group] for codes, segment in zip(group_codes, segments, strict=True)
    )
    speaker_codes, speakers = _merged_dictionary([segment.speakers for segment in segments])
    columns["speaker"] = joined(
        codes[segment.columns.speaker] for codes, segment in zip(speaker_codes, segments, strict=True)
    )
    return RowColumns(**columns), groups, speakers


def _merged_dictionary(lists: Sequence[tuple[H, ...]]) -> tuple[list[Codes], tuple[H, ...]]:
    """Return one dictionary of all values, and for each list the codes of its values in it."""
    known: dict[H, int] = {}
    codes = [np.array([known.setdefault(value, len(known)) for value in values], np.uint32) for values in lists]
    return codes, tuple(known)


class _TermRange(NamedTuple):
    """Postings of consecutive terms: number of rows, rows and term frequencies."""

    terms: slice
    sizes: NDArray[np.int64]
    rows: NDArray[np.int64]
    counts: NDArray[np.uint8]


class _Postings:
    """Postings of a segment with renumbered rows."""

    def __init__(self, postings: TermPostings, new_rows: NDArray[np.int64]) -> None:
        self._postings = postings
        self._new_rows = new_rows
        self.sizes = np.empty(len(postings.terms), np.int64)
        for term_range in self.term_ranges():
            self.sizes[term_range.terms] = term_range.sizes
        self.used = np.flatnonzero(self.sizes)
        self.terms = postings.terms[self.used]

    def term_ranges(self) -> Iterator[_TermRange]:
        """Yield the remaining postings in batches."""
        starts, last = self._postings.starts, len(self._postings.terms)
        first = 0
        while first < last:
            end = int(np.searchsorted(starts, starts[first] + _POSTINGS_BATCH_SIZE, side="right")) - 1
            end = min(max(end, first + 1), last)
            yield self._term_range(first, end)
            first = end

    def _term_range(self, first: int, end: int) -> _TermRange:
        starts = self._postings.starts[first : end + 1]
        rows = self._new_rows[self._postings.rows[starts[0] : starts[-1]]]
        kept = rows >= 0
        remaining = np.add.reduceat(kept, starts[:-1] - starts[0], dtype=np.int64)
        return _TermRange(slice(first, end), remaining, rows[kept], self._postings.counts[starts[0] : starts[-1]][kept])


def _postings(parts: Sequence[_Postings]) -> TermPostings:
    terms = np.unique(np.concatenate([part.terms for part in parts]))
    sizes = np.zeros(len(terms) + 1, np.int64)
    for part in parts:
        sizes[np.searchsorted(terms, part.terms) + 1] += part.sizes[part.used]
    starts = np.cumsum(sizes)
    rows, counts = np.empty(starts[-1], np.uint32), np.empty(starts[-1], np.uint8)
    free = starts[:-1].copy()
    for part in parts:
        index = np.zeros(len(part.sizes), np.intp)
        index[part.used] = np.searchsorted(terms, part.terms)
        for term_range in part.term_ranges():
            if not len(term_range.rows):
                continue
            inside = np.cumsum(term_range.sizes) - term_range.sizes
            target = np.repeat(free[index[term_range.terms]] - inside, term_range.sizes) + np.arange(
                len(term_range.rows)
            )
            rows[target], counts[target] = term_range.rows, term_range.counts
        free[index[part.used]] += part.sizes[part.used]
    return TermPostings(terms, starts, rows, counts)


def _in_row_order(postings: TermPostings) -> TermPostings:
    """Sort the rows of each term, which are unordered where segments overlap."""
    term = np.repeat(np.arange(len(postings.terms), dtype=np.int64), np.diff(postings.starts))
    order = np.argsort(term << 32 | postings.rows, kind="stable")
    return TermPostings(postings.terms, postings.starts, postings.rows[order], postings.counts[order])


def _vectors(
    segments: Sequence[Segment], new_rows: Sequence[NDArray[np.int64]], size: int, *, cluster: bool
) -> Vectors:
    dimensions = _most_common_dimensions([segment.vectors for segment in segments])
    parts = [
        (segment.vectors, target[segment.vectors.rows])
        for segment, target in zip(segments, new_rows, strict=True)
        if segment.vectors.dimensions == dimensions and len(segment.vectors.rows)
    ]
    rows = np.concatenate([np.empty(0, np.int64), *(places[places >= 0] for _, places in parts)])
    if not len(rows):
        return no_vectors(size)
    codes = np.concatenate([vectors.codes[places >= 0] for vectors, places in parts])
    scale = np.concatenate([vectors.scale[places >= 0] for vectors, places in parts])
    clusters = cluster_vectors(codes, scale) if cluster and len(codes) >= MIN_CLUSTERED else unclustered(codes)
    halves = _halves(parts, clusters.order, dimensions)
    return arrange_vectors(codes, scale, rows.astype(np.uint32), size, clusters, halves)


def _most_common_dimensions(all_vectors: Iterable[Vectors]) -> int:
    sizes: Counter[int] = Counter()
    for vectors in all_vectors:
        sizes[vectors.dimensions] += len(vectors.rows)
    return max(sizes, key=sizes.__getitem__, default=0)


def _halves(
    parts: Sequence[tuple[Vectors, NDArray[np.int64]]], order: NDArray[np.intp], dimensions: int
) -> NDArray[np.float16]:
    """Return the float16 vectors in a new order, without copying all of them at once."""
    halves = np.empty((len(order), dimensions), np.float16)
    slot = np.empty(len(order), np.intp)
    slot[order] = np.arange(len(order))
    before = 0
    for vectors, places in parts:
        kept = np.flatnonzero(places >= 0)
        for start in range(0, len(kept), _VECTORS_BATCH_SIZE):
            batch = kept[start : start + _VECTORS_BATCH_SIZE]
            halves[slot[before : before + len(batch)]] = vectors.halves[batch]
            before += len(batch)
    return halves
