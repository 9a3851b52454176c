"""IVF clustering: groups near vectors, so that a search scans only the nearest clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weftline.search_index.quantized_vectors import Vectors, code_dots, packed_codes, quantise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.int8]
    Floats = NDArray[np.float32]

# Smaller segments are scanned completely.
MIN_CLUSTERED = 32_768
_CLUSTERS_PER_ROOT = 2
_SAMPLES_PER_CLUSTER = 48
_ITERATIONS = 8
_BATCH_SIZE = 4_096
# Parameters of the trial searches that determine the scanned share.
_TRIALS, _NEAREST, _MIX, _TARGET_RECALL = 128, 10, 0.5, 0.995
# Fixed, so that the same vectors give the same file.
_RNG_STATE = 20_260_406


class Clusters(NamedTuple):
    """Clusters of vectors; empty for few vectors.

    ``order`` sorts vectors by cluster, ``starts`` are the bounds of clusters, ``centres`` are normalised. ``reach`` is
    the share of vectors to scan, nearest clusters first, to find nearly all nearest neighbours of a query.
    """

    order: NDArray[np.intp]
    starts: NDArray[np.int64]
    centres: Floats
    reach: float


def cluster_vectors(codes: Bytes, scale: Floats) -> Clusters:
    """Find clusters by k-means on a sample, and assign every vector to the nearest."""
    nearest = _nearest(codes, _centres(codes, _CLUSTERS_PER_ROOT * round(len(codes) ** 0.5)))
    order = np.argsort(nearest, kind="stable")
    used, starts = np.unique(nearest[order], return_index=True)
    centres = np.empty((len(used), codes.shape[1]), np.float32)
    for index, (start, end) in enumerate(zip(starts, [*starts[1:], len(order)], strict=True)):
        centres[index] = _mean(codes[order[start:end]])
    reach = _reach(codes, scale, np.searchsorted(used, nearest), centres)
    return Clusters(order, np.append(starts, len(order)).astype(np.int64), centres, reach)


def arrange_vectors(
    codes: Bytes, scale: Floats, rows: NDArray[np.uint32], size: int, clusters: Clusters, halves: NDArray[np.float16]
) -> Vectors:
    """Return vectors sorted by cluster. ``halves`` are in that order already."""
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
    """Return a single cluster of all vectors."""
    whole = np.array([0, len(codes)], np.int64)
    return Clusters(np.arange(len(codes)), whole, np.empty((0, codes.shape[1]), np.float32), 1.0)


def _centres(codes: Bytes, count: int) -> Floats:
    random = np.random.default_rng(_RNG_STATE)
    size = min(len(codes), count * _SAMPLES_PER_CLUSTER)
    sample = codes[np.sort(random.choice(len(codes), size, replace=False))]
    centres = _normalised(sample[np.sort(random.choice(size, count, replace=False))].astype(np.float32))
    for _ in range(_ITERATIONS):
        centres = _updated_centres(sample, _nearest(sample, centres), centres)
    return centres


def _updated_centres(sample: Bytes, nearest: NDArray[np.intp], centres: Floats) -> Floats:
    """Return the mean of each cluster; an empty cluster stays unchanged."""
    order = np.argsort(nearest, kind="stable")
    used, starts = np.unique(nearest[order], return_index=True)
    updated = centres.copy()
    updated[used] = _normalised(np.add.reduceat(sample[order].astype(np.float32), starts, axis=0))
    return updated


def _nearest(codes: Bytes, centres: Floats) -> NDArray[np.intp]:
    """Return the nearest centre of each vector by quantised dot products."""
    quantised = quantise(centres)
    scale = 1.0 / np.linalg.norm(quantised.astype(np.float32), axis=1).clip(min=1.0)
    packed = packed_codes(quantised)
    nearest = np.empty(len(codes), np.intp)
    for start in range(0, len(codes), _BATCH_SIZE):
        part = slice(start, start + _BATCH_SIZE)
        dots = code_dots(codes[part], packed)
        nearest[part] = np.argmax(dots * scale, axis=1)
    return nearest


def _reach(codes: Bytes, scale: Floats, cluster: NDArray[np.intp], centres: Floats) -> float:
    """Measure the share to scan: trial searches with queries between two vectors."""
    one, other = np.random.default_rng(_RNG_STATE).integers(len(codes), size=(2, _TRIALS))
    queries = codes[one] * scale[one, None] + _MIX * codes[other] * scale[other, None]
    nearest = _exact_nearest(codes, scale, quantise(queries.astype(np.float32)))
    sizes = np.bincount(cluster, minlength=len(centres))
    order = np.argsort(-(queries @ centres.T), axis=1, kind="stable")
    scanned = np.cumsum(sizes[order], axis=1)
    rank = np.argsort(order, axis=1)
    needed = [scanned[index, rank[index, cluster[rows]]] for index, rows in enumerate(nearest)]
    return float(np.quantile(np.concatenate(needed), _TARGET_RECALL) / len(codes))


def _exact_nearest(codes: Bytes, scale: Floats, queries: Bytes) -> NDArray[np.intp]:
    packed = packed_codes(queries)
    best, rows = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.intp)
    for start in range(0, len(codes), _BATCH_SIZE):
        part = slice(start, start + _BATCH_SIZE)
        dots = code_dots(codes[part], packed) * scale[part, None]
        best = np.concatenate((best, dots.T), axis=1)
        rows = np.concatenate((rows, np.broadcast_to(np.arange(start, start + len(dots)), dots.T.shape)), axis=1)
        kept = np.argpartition(-best, min(_NEAREST, best.shape[1] - 1), axis=1)[:, :_NEAREST]
        best, rows = np.take_along_axis(best, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
    return rows


def _mean(codes: Bytes) -> Floats:
    mean: Floats = _normalised(codes.sum(axis=0, dtype=np.float32)[None, :])[0]
    return mean


def _normalised(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions: Floats = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return directions
