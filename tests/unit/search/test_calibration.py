"""Figures from 0 to 1 that grow with what they are made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.capabilities.search.selection import confidence, relevance

pytestmark = pytest.mark.req("CE-F11", part="ranking by meaning, words and recency; widening at low confidence")
EVIDENCE = st.floats(-1, 4, width=32)


@given(EVIDENCE, EVIDENCE)
def test_relevance_is_monotonic_in_each_score(one: float, other: float) -> None:
    less, more = relevance(np.array(sorted([one, other]), np.float32))
    assert 0 <= less <= more <= 1


def test_zero_scores_give_zero_relevance() -> None:
    assert relevance(np.array([0.0, -3.0], np.float32)).tolist() == [0.0, 0.0]


@given(st.lists(EVIDENCE, min_size=1, max_size=30), st.floats(0, 2), st.floats(0.001, 1))
def test_confidence_grows_with_the_best_score(others: list[float], beside: float, more: float) -> None:
    best = np.array(sorted(others, reverse=True), np.float32)
    lifted = best.copy()
    lifted[0] += np.float32(more)
    assert 0 <= confidence(best, beside) <= confidence(lifted, beside) <= confidence(lifted, beside + more) <= 1


def test_an_outlier_gives_more_confidence_than_equal_scores() -> None:
    alike = np.full(10, 0.6, np.float32)
    standing_out = np.array([0.6, *[0.1] * 9], np.float32)
    assert confidence(standing_out, 0.3) > confidence(alike, 0.3)


def test_no_results_give_zero_confidence() -> None:
    assert confidence(np.empty(0, np.float32), 0.0) == 0.0
