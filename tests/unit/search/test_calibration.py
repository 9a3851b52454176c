"""Calibration: relevance and confidence are between 0 and 1 and monotonic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.capabilities.search.selection import confidence, relevance

pytestmark = pytest.mark.req("CE-F11", part="ranking by meaning, words and recency; widening at low confidence")
SCORES = st.floats(-1, 4, width=32)


@given(SCORES, SCORES)
def test_relevance_is_monotonic_in_each_score(one: float, other: float) -> None:
    less, more = relevance(np.array(sorted([one, other]), np.float32))
    assert 0 <= less <= more <= 1


def test_zero_scores_give_zero_relevance() -> None:
    assert relevance(np.array([0.0, -3.0], np.float32)).tolist() == [0.0, 0.0]


@given(st.lists(SCORES, min_size=1, max_size=30), st.floats(0, 2), st.floats(0.001, 1))
def test_confidence_grows_with_the_best_score(others: list[float], non_lexical: float, more: float) -> None:
    best = np.array(sorted(others, reverse=True), np.float32)
    raised = best.copy()
    raised[0] += np.float32(more)
    assert (
        0
        <= confidence(best, non_lexical)
        <= confidence(raised, non_lexical)
        <= confidence(raised, non_lexical + more)
        <= 1
    )


def test_an_outlier_gives_more_confidence_than_equal_scores() -> None:
    equal = np.full(10, 0.6, np.float32)
    outlier = np.array([0.6, *[0.1] * 9], np.float32)
    assert confidence(outlier, 0.3) > confidence(equal, 0.3)


def test_no_results_give_zero_confidence() -> None:
    assert confidence(np.empty(0, np.float32), 0.0) == 0.0
