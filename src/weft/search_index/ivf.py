"""Putting vectors that are near each other together, so that most need not be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numkong
import numpy as np

from weft.search_index.quantized_vectors import Vectors, quantised

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.int8]
    Floats = NDArray[np.float32]

# Fewer are looked through as they are.
FEWEST_CLUSTERED = 32_768
_CLUSTERS_A_ROOT = 2
_SAMPLES_A_CLUSTER = 48
_ROUNDS = 8
_AT_ONCE = 4_096
# What looking through clusters is tried with.
_QUESTIONS, _NEAREST, _BESIDE, _NEARLY_ALL = 128, 10, 0.5, 0.995
# Always the same, so that the same vectors make the same file.
_FIRST_CHANCE = 20_260_406


class Clusters(NamedTuple):
    """Vectors in the order of their clusters, where each begins, and where it lies: nothing for few vectors.

    ``centres`` are of length one. ``reach`` is the share of all vectors that must be looked through, nearest clusters
    first, to find nearly all of those that are nearest to a question.
    """

    order: NDArray[np.intp]
    starts: NDArray[np.int64]
    centres: Floats
    reach: float


def clustered(codes: Bytes, scale: Floats) -> Clusters:
    """Find clusters by k-means on a sample, and put every vector into the one it is nearest to."""
    nearest = _nearest(codes, _centres(codes, _CLUSTERS_A_ROOT * round(len(codes) ** 0.5)))
    order = np.argsort(nearest, kind="stable")
    used, starts = np.unique(nearest[order], return_index=True)
    centres = np.empty((len(used), codes.shape[1]), np.float32)
    for place, (start, end) in enumerate(zip(starts, [*starts[1:], len(order)], strict=True)):
        centres[place] = _middle(codes[order[start:end]])
    reach = _reach(codes, scale, np.searchsorted(used, nearest), centres)
    return Clusters(order, np.append(starts, len(order)).astype(np.int64), centres, reach)


def arranged(
    codes: Bytes, scale: Floats, rows: NDArray[np.uint32], size: int, clusters: Clusters, halves: NDArray[np.float16]
) -> Vectors:
    """Return vectors cluster by cluster. ``halves`` are in that order already."""
    order = clusters.order
    slot = np.full(size, -1, np.int32)
    slot[rows[order]] = np.arange(len(rows), dtype=np.int32)
    return Vectors(
        halves=halves,
        codes=codes[order],
        scale=scale[order],
        rows=rows[order],
        slot=slot,
        centres=clusters.centres,
        starts=clusters.starts,
        reach=np.array([clusters.reach], np.float32),
    )


def unclustered(codes: Bytes) -> Clusters:
    """Leave vectors as they are."""
    whole = np.array([0, len(codes)], np.int64)
    return Clusters(np.arange(len(codes)), whole, np.empty((0, codes.shape[1]), np.float32), 1.0)


def _centres(codes: Bytes, count: int) -> Floats:
    random = np.random.default_rng(_FIRST_CHANCE)
    size = min(len(codes), count * _SAMPLES_A_CLUSTER)
    sample = codes[np.sort(random.choice(len(codes), size, replace=False))]
    centres = _of_length_one(sample[np.sort(random.choice(size, count, replace=False))].astype(np.float32))
    for _ in range(_ROUNDS):
        centres = _moved(sample, _nearest(sample, centres), centres)
    return centres


def _moved(sample: Bytes, nearest: NDArray[np.intp], centres: Floats) -> Floats:
    """Return the middle of each cluster; one that nothing is nearest to stays where it was."""
    order = np.argsort(nearest, kind="stable")
    used, starts = np.unique(nearest[order], return_index=True)
    moved = centres.copy()
    moved[used] = _of_length_one(np.add.reduceat(sample[order].astype(np.float32), starts, axis=0))
    return moved


def _nearest(codes: Bytes, centres: Floats) -> NDArray[np.intp]:
    """Return for each vector the centre in whose direction it points most, as far as bytes tell."""
    in_bytes = quantised(centres)
    scale = 1.0 / np.linalg.norm(in_bytes.astype(np.float32), axis=1).clip(min=1.0)
    packed = numkong.dots_pack(in_bytes)
    nearest = np.empty(len(codes), np.intp)
    for start in range(0, len(codes), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        dots = np.asarray(numkong.dots_packed(np.ascontiguousarray(codes[part]), packed))
        nearest[part] = np.argmax(dots * scale, axis=1)
    return nearest


def _reach(codes: Bytes, scale: Floats, cluster: NDArray[np.intp], centres: Floats) -> float:
    """Try it out: how far must one look for nearly all of what is nearest to questions that lie between two vectors."""
    one, other = np.random.default_rng(_FIRST_CHANCE).integers(len(codes), size=(2, _QUESTIONS))
    asked = codes[one] * scale[one, None] + _BESIDE * codes[other] * scale[other, None]
    nearest = _nearest_of_all(codes, scale, quantised(asked.astype(np.float32)))
    sizes = np.bincount(cluster, minlength=len(centres))
    order = np.argsort(-(asked @ centres.T), axis=1, kind="stable")
    looked_through = np.cumsum(sizes[order], axis=1)
    rank = np.argsort(order, axis=1)
    needed = [looked_through[place, rank[place, cluster[rows]]] for place, rows in enumerate(nearest)]
    return float(np.quantile(np.concatenate(needed), _NEARLY_ALL) / len(codes))


def _nearest_of_all(codes: Bytes, scale: Floats, asked: Bytes) -> NDArray[np.intp]:
    packed = numkong.dots_pack(asked)
    best, rows = np.empty((len(asked), 0), np.float32), np.empty((len(asked), 0), np.intp)
    for start in range(0, len(codes), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        dots = np.asarray(numkong.dots_packed(np.ascontiguousarray(codes[part]), packed)) * scale[part, None]
        best = np.concatenate((best, dots.T), axis=1)
        rows = np.concatenate((rows, np.broadcast_to(np.arange(start, start + len(dots)), dots.T.shape)), axis=1)
        kept = np.argpartition(-best, min(_NEAREST, best.shape[1] - 1), axis=1)[:, :_NEAREST]
        best, rows = np.take_along_axis(best, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
    return rows


def _middle(codes: Bytes) -> Floats:
    middle: Floats = _of_length_one(codes.sum(axis=0, dtype=np.float32)[None, :])[0]
    return middle


def _of_length_one(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions: Floats = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return directions
