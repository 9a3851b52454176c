"""Putting vectors that are near each other together, so that most need not be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numkong
import numpy as np

from weft.index.vectors import quantised, to_length_one

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.int8]

# Fewer are looked through as they are.
FEWEST_CLUSTERED = 32_768
_CLUSTERS_A_ROOT = 3
_SAMPLES_A_CLUSTER = 40
_ROUNDS = 6
_AT_ONCE = 4_096
# Always the same, so that the same vectors make the same file.
_FIRST_CHANCE = 20_260_406


class Clusters(NamedTuple):
    """Vectors in the order of their clusters, where each cluster begins, and the centres: none for few vectors."""

    order: NDArray[np.intp]
    starts: NDArray[np.int64]
    centres: Bytes


def clustered(codes: Bytes) -> Clusters:
    """Find clusters by k-means on a sample, and put every vector into the one it is nearest to."""
    centres = _centres(codes, _CLUSTERS_A_ROOT * round(len(codes) ** 0.5))
    nearest = _nearest(codes, centres)
    order = np.argsort(nearest, kind="stable")
    starts = np.searchsorted(nearest[order], np.arange(len(centres) + 1)).astype(np.int64)
    return Clusters(order, starts, centres)


def unclustered(codes: Bytes) -> Clusters:
    """Leave vectors as they are."""
    return Clusters(np.arange(len(codes)), np.array([0, len(codes)], np.int64), np.empty((0, codes.shape[1]), np.int8))


def _centres(codes: Bytes, count: int) -> Bytes:
    random = np.random.default_rng(_FIRST_CHANCE)
    sample = codes[np.sort(random.choice(len(codes), min(len(codes), count * _SAMPLES_A_CLUSTER), replace=False))]
    centres = sample[np.sort(random.choice(len(sample), count, replace=False))]
    for _ in range(_ROUNDS):
        centres = _means(sample, _nearest(sample, centres), centres)
    return centres


def _means(sample: Bytes, nearest: NDArray[np.intp], centres: Bytes) -> Bytes:
    """Return the middle of each cluster; one that nothing is nearest to stays where it was."""
    order = np.argsort(nearest, kind="stable")
    used, starts = np.unique(nearest[order], return_index=True)
    sums = np.add.reduceat(sample[order].astype(np.float32), starts, axis=0)
    moved = centres.copy()
    moved[used] = quantised(sums)
    return moved


def _nearest(codes: Bytes, centres: Bytes) -> NDArray[np.intp]:
    """Return for each vector the centre in whose direction it points most."""
    scale = to_length_one(centres)
    packed = numkong.dots_pack(np.ascontiguousarray(centres))
    nearest = np.empty(len(codes), np.intp)
    for start in range(0, len(codes), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        dots = np.asarray(numkong.dots_packed(np.ascontiguousarray(codes[part]), packed))
        nearest[part] = np.argmax(dots * scale, axis=1)
    return nearest
