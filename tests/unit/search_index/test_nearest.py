"""Finding the nearest of many vectors without looking at all of them."""

from __future__ import annotations

import numpy as np
import pytest

from weft.search_index.ivf import MIN_CLUSTERED, arrange_vectors, cluster_vectors
from weft.search_index.quantized_vectors import VisibleVectors, quantise, scales

pytestmark = pytest.mark.req("CE-N", part="recall@10 against exact search over 60,000 vectors")

COUNT, DIMENSIONS, QUESTIONS = 60_000, 32, 60
RANDOM = np.random.default_rng(3)


def spread(count: int) -> np.ndarray:
    """Return vectors in clumps, as embedded texts are."""
    middles = np.random.default_rng(1).standard_normal((400, DIMENSIONS))
    vectors = middles[RANDOM.integers(400, size=count)] + 0.7 * RANDOM.standard_normal((count, DIMENSIONS))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def many() -> np.ndarray:
    return spread(COUNT).astype(np.float16)


def share_found(halves: np.ndarray, visible: np.ndarray | None) -> float:
    floats = halves.astype(np.float32)
    codes, scale = quantise(floats), scales(floats)
    clusters = cluster_vectors(codes, scale)
    rows = np.arange(len(halves), dtype=np.uint32)
    vectors = arrange_vectors(codes, scale, rows, len(rows), clusters, halves[clusters.order])
    assert len(vectors.centres) > 1
    sight = None if visible is None else VisibleVectors(vectors, visible[vectors.rows])
    seen = np.ones(len(halves), bool) if visible is None else visible
    hits = 0
    for question in spread(QUESTIONS):
        exact = np.argsort(-np.where(seen, floats @ question, -2))[:10]
        found = vectors.nearest(question, 10, sight)
        assert seen[found.rows].all()
        assert found.cosines.tolist() == sorted(found.cosines.tolist(), reverse=True)
        hits += len({*found.rows.tolist()} & {*exact.tolist()})
    return hits / (QUESTIONS * 10)


def test_nearly_all_of_the_nearest_are_found(many: np.ndarray) -> None:
    assert share_found(many, None) >= 0.98


@pytest.mark.parametrize("share", [0.9, 0.3, 0.02])
def test_nearly_all_are_found_however_few_are_visible(many: np.ndarray, share: float) -> None:
    assert share_found(many, np.random.default_rng(2).random(COUNT) < share) >= 0.98


def test_visible_vectors_far_from_the_query_are_found(many: np.ndarray) -> None:
    """Whoever sees only one corner of a collection finds what is nearest in that corner."""
    corner = many.astype(np.float32) @ spread(1)[0] > 0.3
    assert 1_000 < corner.sum() < COUNT / 2
    assert share_found(many, corner) >= 0.98


def test_every_vector_is_in_one_cluster_and_the_same_every_time() -> None:
    codes = np.random.default_rng(4).integers(-127, 127, (MIN_CLUSTERED, 8)).astype(np.int8)
    scale = np.ones(len(codes), np.float32)
    first, again = cluster_vectors(codes, scale), cluster_vectors(codes, scale)
    assert sorted(first.order.tolist()) == list(range(len(codes)))
    assert (first.starts[0], first.starts[-1]) == (0, len(codes))
    assert (np.diff(first.starts) >= 0).all()
    assert np.array_equal(first.order, again.order)
    assert np.array_equal(first.centres, again.centres)
