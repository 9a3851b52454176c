"""Vectors of a segment: in bytes for looking through many, in halves for telling the nearest apart.

Many are kept in clusters, so that only the clusters nearest to a question are looked through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numkong
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits = NDArray[np.bool_]
    Floats = NDArray[np.float32]

# Measured against exact search: see docs/decisions/0036.
_SHARE_LOOKED_THROUGH = 0.08
_FEWEST_LOOKED_THROUGH = 20_000
# Bytes tell the nearest only roughly: so many times what is wanted is measured again in halves.
_MEASURED_AGAIN = 4
_LARGEST_BYTE = 127


class Found(NamedTuple):
    """Rows of a segment and how near they are, the nearest first."""

    rows: NDArray[np.int64]
    cosines: Floats


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of those rows that have one, cluster by cluster.

    ``rows`` says whose each is, ``slot`` where the vector of each row is (-1 for none). A vector is about its ``codes``
    times its ``scale``. Clusters lie between ``starts``; their ``centres`` are in bytes too, and times ``centre_scale``
    of length one.
    """

    halves: NDArray[np.float16]
    codes: NDArray[np.int8]
    scale: Floats
    rows: NDArray[np.uint32]
    slot: NDArray[np.int32]
    centres: NDArray[np.int8]
    centre_scale: Floats
    starts: NDArray[np.int64]

    @property
    def dimensions(self) -> int:
        return int(self.halves.shape[1])

    def of_rows(self, rows: NDArray[np.intp], dimensions: int) -> Floats:
        """Return vectors; zeros where a row has none."""
        found = np.zeros((len(rows), dimensions), np.float32)
        slots = self.slot[rows]
        there = np.flatnonzero(slots >= 0)
        if len(there) and self.dimensions == dimensions:
            found[there] = self.halves[slots[there]]
        return found

    def nearest(self, vector: Floats, limit: int, visible: Bits | None, count: int) -> Found:
        """Return the nearest of the visible rows, of which there are ``count``."""
        if not len(self.rows) or not count or self.dimensions != len(vector):
            return _NOTHING
        question = quantised(vector[None, :])[0]
        slots, scores = self._candidates(question, visible, count)
        if len(slots) > limit * _MEASURED_AGAIN:
            best = np.argpartition(scores, -limit * _MEASURED_AGAIN)[-limit * _MEASURED_AGAIN :]
            slots = slots[best]
        slots = np.sort(slots)
        cosines = _dots(vector.astype(np.float16), self.halves[slots])
        first = np.argsort(-cosines, kind="stable")[:limit]
        return Found(self.rows[slots[first]].astype(np.int64), cosines[first])

    def _candidates(
        self, question: NDArray[np.int8], visible: Bits | None, count: int
    ) -> tuple[NDArray[np.intp], Floats]:
        """Return the slots looked through and roughly how near each is."""
        if visible is not None and count * 2 < _FEWEST_LOOKED_THROUGH:
            slots = np.sort(self.slot[np.flatnonzero(visible)].astype(np.intp))
            slots = slots[slots >= 0]
            return slots, byte_dots(question, self.codes[slots]) * self.scale[slots]
        parts = [np.arange(start, end) for start, end in self._stretches(question, visible, count)]
        slots = np.concatenate(parts)
        scores = np.concatenate([byte_dots(question, self.codes[part[0] : part[-1] + 1]) for part in parts])
        scores = scores * self.scale[slots]
        if visible is None:
            return slots, scores
        seen = visible[self.rows[slots]]
        return slots[seen], scores[seen]

    def _stretches(self, question: NDArray[np.int8], visible: Bits | None, count: int) -> list[tuple[int, int]]:
        """Return which slots to look through: the nearest clusters, until they hold enough visible rows."""
        everything = len(self.rows)
        wanted = max(_FEWEST_LOOKED_THROUGH, everything * _SHARE_LOOKED_THROUGH)
        if wanted >= everything or not len(self.centres):
            return [(0, everything)]
        nearest = np.argsort(-byte_dots(question, self.centres) * self.centre_scale, kind="stable")
        sizes = np.diff(self.starts)[nearest]
        enough = int(np.searchsorted(np.cumsum(sizes), wanted)) + 1
        if visible is not None:
            enough = max(enough, self._enough_visible(nearest, visible, wanted * count / everything))
        return _joined(sorted((int(self.starts[c]), int(self.starts[c + 1])) for c in nearest[:enough]))

    def _enough_visible(self, nearest: NDArray[np.intp], visible: Bits, wanted: float) -> int:
        """Return how many clusters hold as many visible rows as so many of all rows hold on average."""
        seen = np.concatenate(([0], np.cumsum(visible[self.rows])))
        held = seen[self.starts[nearest + 1]] - seen[self.starts[nearest]]
        return int(np.searchsorted(np.cumsum(held), wanted)) + 1


_NOTHING = Found(np.empty(0, np.int64), np.empty(0, np.float32))


def no_vectors(rows: int) -> Vectors:
    """Return the vectors of rows that have none here."""
    return Vectors(
        halves=np.empty((0, 0), np.float16),
        codes=np.empty((0, 0), np.int8),
        scale=np.empty(0, np.float32),
        rows=np.empty(0, np.uint32),
        slot=np.full(rows, -1, np.int32),
        centres=np.empty((0, 0), np.int8),
        centre_scale=np.empty(0, np.float32),
        starts=np.zeros(1, np.int64),
    )


def quantised(vectors: Floats) -> NDArray[np.int8]:
    """Return vectors in bytes, each stretched to use all of them."""
    codes: NDArray[np.int8] = np.rint(vectors / scales(vectors)[:, None]).astype(np.int8)
    return codes


def scales(vectors: Floats) -> Floats:
    """Return what a vector's bytes are multiplied by to give it back."""
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    return np.where(largest > 0, largest / _LARGEST_BYTE, 1.0).astype(np.float32)


def to_length_one(codes: NDArray[np.int8]) -> Floats:
    """Return what vectors in bytes are multiplied by to be of length one."""
    scale: Floats = 1.0 / np.linalg.norm(codes.astype(np.float32), axis=1).clip(min=1.0)
    return scale


def byte_dots(question: NDArray[np.int8], codes: NDArray[np.int8]) -> NDArray[np.int32]:
    packed = numkong.dots_pack(question[None, :])
    return np.asarray(numkong.dots_packed(np.ascontiguousarray(codes), packed))[:, 0]


def _dots(vector: NDArray[np.float16], halves: NDArray[np.float16]) -> Floats:
    if not len(halves):
        return np.empty(0, np.float32)
    dots: Floats = np.asarray(numkong.cdist(vector[None, :], halves, "dot"))[0].astype(np.float32)
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
