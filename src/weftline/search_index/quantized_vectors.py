"""Vectors of a segment: int8 codes for scanning, float16 for rescoring.

Large segments are clustered, so that only the clusters nearest to a query are scanned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weftline.search.scoring import largest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Codes = NDArray[np.int8]
    Halves = NDArray[np.float16]
    Floats = NDArray[np.float32]
    Bits = NDArray[np.bool_]


# Dot products of int8 and float16 vectors: on numkong where weftline[search] is installed, else on numpy.
#
# numpy has no fast product of int8: converted to float32 first, 50,000 vectors of 384 dimensions take 32 ms instead of
# 2.

try:
    import numkong
except ImportError:
    HAS_NUMKONG = False
else:
    HAS_NUMKONG = True


def packed_codes(codes: Codes) -> Any:  # noqa: ANN401 - a type of numkong, or floats
    """Prepare int8 vectors for products with many others."""
    return numkong.dots_pack(codes) if HAS_NUMKONG else codes.astype(np.float32).T


def code_dots(codes: Codes, packed: Any) -> NDArray[Any]:  # noqa: ANN401 - see above
    """Return the product of each vector, a row, with each packed one, a column."""
    if HAS_NUMKONG:
        return np.asarray(numkong.dots_packed(np.ascontiguousarray(codes), packed))
    dots: Floats = codes.astype(np.float32) @ packed
    return dots


def half_dots(vectors: Halves, halves: Halves) -> Floats:
    """Return the product of each vector, a row, with each of the others, a column."""
    if not len(halves):
        return np.empty((len(vectors), 0), np.float32)
    if HAS_NUMKONG:
        dots: Floats = np.asarray(numkong.cdist(vectors, halves, "dot")).astype(np.float32)
        return dots
    return vectors.astype(np.float32) @ halves.astype(np.float32).T


def to_floats(halves: Halves) -> Floats:
    return np.asarray(numkong.astype(halves, "float32")) if HAS_NUMKONG else halves.astype(np.float32)


# Measured against exact search: see docs/decisions/0036.
_MIN_SHARE = 0.06
_MIN_SCANNED = 20_000
# int8 scores are approximate: this many times the limit is rescored with float16.
_RESCORED_FACTOR = 4
_MAX_CODE = 127


class NearestVectors(NamedTuple):
    """Rows of a segment and their cosines, nearest first."""

    rows: NDArray[np.int64]
    cosines: Floats


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of the rows that have one, sorted by cluster.

    ``rows`` maps slots to rows, ``slot`` rows to slots (-1 for none). A vector is approximately ``codes`` times
    ``scale``. ``starts`` are the bounds of clusters, ``centres`` their directions. ``reach`` is the share of vectors to
    scan, measured by trial searches.
    """

    halves: NDArray[np.float16]
    codes: NDArray[np.int8]
    scale: Floats
    rows: NDArray[np.uint32]
    slot: NDArray[np.int32]
    centres: Floats
    starts: NDArray[np.int64]
    reach: Floats

    @property
    def dimensions(self) -> int:
        return int(self.halves.shape[1])

    def copy_vectors(self, found: Floats, places: NDArray[np.intp], rows: NDArray[np.intp]) -> None:
        """Copy the vectors of rows into these places of an array; rows without a vector are skipped."""
        slots = self.slot[rows]
        present = slots >= 0
        if present.any() and self.dimensions == found.shape[1]:
            found[places[present]] = to_floats(self.halves[slots[present]])

    def copy_cosines(self, found: Floats, places: NDArray[np.intp], rows: NDArray[np.intp], queries: Floats) -> None:
        """Copy the cosines of rows and each query into these places of an array."""
        slots = self.slot[rows]
        present = slots >= 0
        if present.any() and self.dimensions == queries.shape[1]:
            found[:, places[present]] = half_dots(queries.astype(np.float16), self.halves[slots[present]])

    def nearest(self, vector: Floats, limit: int, visible: VisibleVectors | None = None) -> NearestVectors:
        """Return the nearest visible rows; None means all are visible."""
        if not len(self.rows) or self.dimensions != len(vector):
            return _NONE_NEAR
        slots, scores = self._candidates(vector, visible)
        if len(slots) > limit * _RESCORED_FACTOR:
            slots = slots[largest(scores, limit * _RESCORED_FACTOR, lambda equal: self.rows[slots[equal]])]
        slots = np.sort(slots)
        cosines = half_dots(vector[None, :].astype(np.float16), self.halves[slots])[0]
        first = np.lexsort((self.rows[slots], -cosines))[:limit]
        return NearestVectors(self.rows[slots[first]].astype(np.int64), cosines[first])

    def _candidates(self, vector: Floats, visible: VisibleVectors | None) -> tuple[NDArray[np.intp], Floats]:
        """Return the scanned slots and their approximate scores."""
        packed_query = packed_codes(quantise(vector[None, :]))
        if visible is not None and len(visible.slots) < _MIN_SCANNED:
            return visible.slots, code_dots(self.codes[visible.slots], packed_query)[:, 0] * self.scale[visible.slots]
        ranges = self._ranges_to_scan(vector, visible)
        slots = np.concatenate([np.arange(start, end) for start, end in ranges])
        dots = np.concatenate([code_dots(self.codes[start:end], packed_query)[:, 0] for start, end in ranges])
        scores = dots * self.scale[slots]
        if visible is None:
            return slots, scores
        is_visible = visible.by_slot[slots]
        return slots[is_visible], scores[is_visible]

    def _ranges_to_scan(self, vector: Floats, visible: VisibleVectors | None) -> list[tuple[int, int]]:
        """Return the slots to scan: the nearest clusters, until they hold enough visible vectors."""
        total = len(self.rows)
        target = max(_MIN_SCANNED, total * max(float(self.reach[0]), _MIN_SHARE))
        if target >= total or not len(self.centres):
            return [(0, total)]
        nearest = np.argsort(-(self.centres @ vector), kind="stable")
        count = int(np.searchsorted(np.cumsum(np.diff(self.starts)[nearest]), target)) + 1
        if visible is not None:
            visible_counts = np.cumsum(visible.by_cluster[nearest])
            count = max(count, int(np.searchsorted(visible_counts, target * len(visible.slots) / total)) + 1)
        return _merged_ranges(sorted((int(self.starts[c]), int(self.starts[c + 1])) for c in nearest[:count]))


class VisibleVectors:
    """The vectors of visible rows, if some are hidden."""

    def __init__(self, vectors: Vectors, by_slot: Bits) -> None:
        self._vectors = vectors
        self.by_slot = by_slot

    @cached_property
    def slots(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.by_slot)

    @cached_property
    def by_cluster(self) -> NDArray[np.int64]:
        """Return the number of visible vectors of each cluster."""
        before = np.searchsorted(self.slots, self._vectors.starts)
        return np.diff(before)

    def without(self, slots: NDArray[np.int32]) -> VisibleVectors:
        """Return this without the vectors in some slots (-1 for none)."""
        by_slot = self.by_slot.copy()
        by_slot[slots[slots >= 0]] = False
        return VisibleVectors(self._vectors, by_slot)


_NONE_NEAR = NearestVectors(np.empty(0, np.int64), np.empty(0, np.float32))


def no_vectors(rows: int) -> Vectors:
    """Return the vectors of rows that have none."""
    return Vectors(
        halves=np.empty((0, 0), np.float16),
        codes=np.empty((0, 0), np.int8),
        scale=np.empty(0, np.float32),
        rows=np.empty(0, np.uint32),
        slot=np.full(rows, -1, np.int32),
        centres=np.empty((0, 0), np.float32),
        starts=np.zeros(1, np.int64),
        reach=np.ones(1, np.float32),
    )


def quantise(vectors: Floats) -> NDArray[np.int8]:
    """Quantise vectors to int8, each scaled to the full range."""
    codes: NDArray[np.int8] = np.rint(vectors / scales(vectors)[:, None]).astype(np.int8)
    return codes


def scales(vectors: Floats) -> Floats:
    """Return the factor of each vector's codes."""
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    return np.where(largest > 0, largest / _MAX_CODE, 1.0).astype(np.float32)


def _merged_ranges(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, adjacent ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in ranges:
        if start == end:
            continue
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged
