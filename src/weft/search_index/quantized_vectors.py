"""Vectors of a segment: in bytes for looking through many, in halves for telling the nearest apart.

Many are kept in clusters, so that only the clusters nearest to a question are looked through.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numkong
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits = NDArray[np.bool_]
    Floats = NDArray[np.float32]

# Measured against exact search: see docs/decisions/0036.
_LEAST_SHARE = 0.06
_FEWEST_LOOKED_THROUGH = 20_000
# Bytes tell the nearest only roughly: so many times what is wanted is measured again in halves.
_MEASURED_AGAIN = 4
_LARGEST_BYTE = 127


class NearestVectors(NamedTuple):
    """Rows of a segment and how near they are, the nearest first."""

    rows: NDArray[np.int64]
    cosines: Floats


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of those rows that have one, cluster by cluster.

    ``rows`` says whose each is, ``slot`` where the vector of each row is (-1 for none). A vector is about its ``codes``
    times its ``scale``. Clusters lie between ``starts``; ``centres`` are the directions of their middles. ``reach`` is
    the share of all vectors that must be looked through, as was found out by trying.
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

    def put_into(self, found: Floats, places: NDArray[np.intp], rows: NDArray[np.intp]) -> None:
        """Put the vectors of rows into these places of an array; where a row has none, nothing is put."""
        slots = self.slot[rows]
        there = slots >= 0
        if there.any() and self.dimensions == found.shape[1]:
            found[places[there]] = numkong.astype(self.halves[slots[there]], "float32")

    def put_cosines(self, found: Floats, places: NDArray[np.intp], rows: NDArray[np.intp], questions: Floats) -> None:
        """Put how near the vectors of rows are to each question into these places of its row of an array."""
        slots = self.slot[rows]
        there = slots >= 0
        if there.any() and self.dimensions == questions.shape[1]:
            found[:, places[there]] = _dots(questions.astype(np.float16), self.halves[slots[there]])

    def nearest(self, vector: Floats, limit: int, sight: VisibleVectors | None = None) -> NearestVectors:
        """Return the nearest of the rows that are in sight; None for all."""
        if not len(self.rows) or self.dimensions != len(vector):
            return _NOTHING
        slots, scores = self._candidates(vector, sight)
        if len(slots) > limit * _MEASURED_AGAIN:
            best = np.argpartition(scores, -limit * _MEASURED_AGAIN)[-limit * _MEASURED_AGAIN :]
            slots = slots[best]
        slots = np.sort(slots)
        cosines = _dots(vector[None, :].astype(np.float16), self.halves[slots])[0]
        first = np.argsort(-cosines, kind="stable")[:limit]
        return NearestVectors(self.rows[slots[first]].astype(np.int64), cosines[first])

    def _candidates(self, vector: Floats, sight: VisibleVectors | None) -> tuple[NDArray[np.intp], Floats]:
        """Return the slots looked through and roughly how near each is."""
        question = numkong.dots_pack(quantised(vector[None, :]))
        if sight is not None and len(sight.slots) < _FEWEST_LOOKED_THROUGH:
            return sight.slots, _byte_dots(question, self.codes[sight.slots]) * self.scale[sight.slots]
        stretches = self._stretches(vector, sight)
        slots = np.concatenate([np.arange(start, end) for start, end in stretches])
        dots = np.concatenate([_byte_dots(question, self.codes[start:end]) for start, end in stretches])
        scores = dots * self.scale[slots]
        if sight is None:
            return slots, scores
        seen = sight.by_slot[slots]
        return slots[seen], scores[seen]

    def _stretches(self, vector: Floats, sight: VisibleVectors | None) -> list[tuple[int, int]]:
        """Return which slots to look through: the nearest clusters, until they hold enough of what is in sight."""
        everything = len(self.rows)
        wanted = max(_FEWEST_LOOKED_THROUGH, everything * max(float(self.reach[0]), _LEAST_SHARE))
        if wanted >= everything or not len(self.centres):
            return [(0, everything)]
        nearest = np.argsort(-(self.centres @ vector), kind="stable")
        enough = int(np.searchsorted(np.cumsum(np.diff(self.starts)[nearest]), wanted)) + 1
        if sight is not None:
            in_sight = np.cumsum(sight.by_cluster[nearest])
            enough = max(enough, int(np.searchsorted(in_sight, wanted * len(sight.slots) / everything)) + 1)
        return _joined(sorted((int(self.starts[c]), int(self.starts[c + 1])) for c in nearest[:enough]))


class VisibleVectors:
    """The vectors of the rows that a caller sees, when these are not all."""

    def __init__(self, vectors: Vectors, by_slot: Bits) -> None:
        self._vectors = vectors
        self.by_slot = by_slot

    @cached_property
    def slots(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.by_slot)

    @cached_property
    def by_cluster(self) -> NDArray[np.int64]:
        """Return how many each cluster holds."""
        before = np.searchsorted(self.slots, self._vectors.starts)
        return np.diff(before)

    def without(self, slots: NDArray[np.int32]) -> VisibleVectors:
        """Return what is seen when the vectors in some slots (-1 for none) are gone."""
        by_slot = self.by_slot.copy()
        by_slot[slots[slots >= 0]] = False
        return VisibleVectors(self._vectors, by_slot)


_NOTHING = NearestVectors(np.empty(0, np.int64), np.empty(0, np.float32))


def no_vectors(rows: int) -> Vectors:
    """Return the vectors of rows that have none here."""
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


def quantised(vectors: Floats) -> NDArray[np.int8]:
    """Return vectors in bytes, each stretched to use all of them."""
    codes: NDArray[np.int8] = np.rint(vectors / scales(vectors)[:, None]).astype(np.int8)
    return codes


def scales(vectors: Floats) -> Floats:
    """Return what a vector's bytes are multiplied by to give it back."""
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    return np.where(largest > 0, largest / _LARGEST_BYTE, 1.0).astype(np.float32)


def _byte_dots(packed: numkong.PackedMatrix, codes: NDArray[np.int8]) -> NDArray[np.int32]:
    return np.asarray(numkong.dots_packed(np.ascontiguousarray(codes), packed))[:, 0]


def _dots(vectors: NDArray[np.float16], halves: NDArray[np.float16]) -> Floats:
    if not len(halves):
        return np.empty((len(vectors), 0), np.float32)
    dots: Floats = np.asarray(numkong.cdist(vectors, halves, "dot")).astype(np.float32)
    return dots


def _joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return stretches in order, neighbours as one, so that few are looked through one by one."""
    joined: list[tuple[int, int]] = []
    for start, end in stretches:
        if start == end:
            continue
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
