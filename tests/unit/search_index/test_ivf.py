"""Approximate nearest-neighbour search with IVF clusters: recall against exact search."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.search_index.ivf import MIN_CLUSTERED, arrange_vectors, cluster_vectors
from weftline.search_index.quantized_vectors import VisibleVectors, quantise, scales

pytestmark = pytest.mark.req("CE-N", part="recall@10 against exact search over 60,000 vectors")

COUNT, DIMENSIONS, QUERIES = 60_000, 32, 60
RANDOM = np.random.default_rng(3)


def random_vectors(count: int) -> np.ndarray:
    """Return clustered vectors, as embeddings of texts are."""
    centres = np.random.default_rng(1).standard_normal((400, DIMENSIONS))
    vectors = centres[RANDOM.integers(400, size=count)] + 0.7 * RANDOM.standard_normal((count, DIMENSIONS))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def stored_vectors() -> np.ndarray:
    return random_vectors(COUNT).astype(np.float16)


def recall(float16s: np.ndarray, visible: np.ndarray | None) -> float:
    floats = float16s.astype(np.float32)
    codes, scale = quantise(floats), scales(floats)
    clusters = cluster_vectors(codes, scale)
    rows = np.arange(len(float16s), dtype=np.uint32)
    vectors = arrange_vectors(codes, scale, rows, len(rows), clusters, float16s[clusters.order])
    assert len(vectors.centres) > 1
    visible_vectors = None if visible is None else VisibleVectors(vectors, visible[vectors.rows])
    is_visible = np.ones(len(float16s), bool) if visible is None else visible
    hits = 0
    for query in random_vectors(QUERIES):
        exact = np.argsort(-np.where(is_visible, floats @ query, -2))[:10]
        found = vectors.nearest(query, 10, visible_vectors)
        assert is_visible[found.rows].all()
        assert found.cosines.tolist() == sorted(found.cosines.tolist(), reverse=True)
        hits += len({*found.rows.tolist()} & {*exact.tolist()})
    return hits / (QUERIES * 10)


def test_recall_at_10_is_at_least_98_percent(stored_vectors: np.ndarray) -> None:
    assert recall(stored_vectors, None) >= 0.98


@pytest.mark.parametrize("share", [0.9, 0.3, 0.02])
def test_recall_does_not_depend_on_the_visible_share(stored_vectors: np.ndarray, share: float) -> None:
    assert recall(stored_vectors, np.random.default_rng(2).random(COUNT) < share) >= 0.98


def test_recall_holds_for_visible_vectors_far_from_the_query(stored_vectors: np.ndarray) -> None:
    """A caller that sees one region of a collection finds the nearest vectors of that region."""
    region = stored_vectors.astype(np.float32) @ random_vectors(1)[0] > 0.3
    assert 1_000 < region.sum() < COUNT / 2
    assert recall(stored_vectors, region) >= 0.98


def test_clusters_are_a_deterministic_partition() -> None:
    codes = np.random.default_rng(4).integers(-127, 127, (MIN_CLUSTERED, 8)).astype(np.int8)
    scale = np.ones(len(codes), np.float32)
    first, again = cluster_vectors(codes, scale), cluster_vectors(codes, scale)
    assert sorted(first.order.tolist()) == list(range(len(codes)))
    assert (first.starts[0], first.starts[-1]) == (0, len(codes))
    assert (np.diff(first.starts) >= 0).all()
    assert np.array_equal(first.order, again.order)
    assert np.array_equal(first.centres, again.centres)
