"""Canary queries: which queries the new model answers, and how its answers are compared."""

from __future__ import annotations

import pytest

from weftline.indexing.embeddings import Model, TenantModel, known_models_to_fill, query_model
from weftline.indexing.model_migration import (
    STEP_QUERIES,
    Canary,
    QueryComparison,
    QuerySample,
    overlap,
    rank_correlation,
)

pytestmark = pytest.mark.req("CE-F51")
OLD, NEW = Model("old", 4, 100), Model("new", 4, 100)
HOUR = 3_600_000_000
QUERIES = [f"query number {number}" for number in range(2_000)]


def answered_by_new(share: int, known: tuple[Model, ...] = (OLD, NEW)) -> set[str]:
    listed = [TenantModel("new", "building", 0, share), TenantModel("old", "serving", 0)]
    return {query for query in QUERIES if query_model(listed, known, query).model == NEW}


def test_a_growing_share_of_queries_is_answered_by_the_new_model() -> None:
    tenth, half = answered_by_new(100), answered_by_new(500)
    assert 0.08 < len(tenth) / len(QUERIES) < 0.12
    assert 0.46 < len(half) / len(QUERIES) < 0.54
    assert tenth < half
    assert answered_by_new(0) == set()


def test_a_query_keeps_its_model_however_it_is_spaced_and_written() -> None:
    listed = [TenantModel("new", "building", 0, 500), TenantModel("old", "serving", 0)]
    for query in QUERIES[:100]:
        again = f"  {query.upper().replace(' ', '   ')} "
        assert query_model(listed, (OLD, NEW), query) == query_model(listed, (OLD, NEW), again)
    chosen = query_model(listed, (OLD, NEW), next(iter(answered_by_new(500))))
    assert (chosen.model, chosen.fallback) == (NEW, OLD)


def test_a_process_without_the_new_model_answers_with_the_old_one() -> None:
    assert answered_by_new(999, (OLD,)) == set()


def test_a_model_kept_for_a_rollback_is_filled_only_where_it_is_configured() -> None:
    listed = [TenantModel("new", "serving", 0), TenantModel("old", "kept", 0)]
    assert known_models_to_fill(listed, (NEW, OLD)) == ("new", "old")
    assert known_models_to_fill(listed, (NEW,)) == ("new",)


@pytest.mark.parametrize(
    ("before", "after", "shared", "correlation"),
    [
        ([1, 2, 3], [1, 2, 3], 1.0, 1.0),
        ([1, 2, 3], [3, 2, 1], 1.0, -1.0),
        ([1, 2, 3, 4], [1, 9, 8, 7], 0.25, None),
        ([1, 2, 3, 4], [1], 1.0, None),
        ([1, 2, 3, 4], [2, 1, 4, 3], 1.0, 1 / 3),
        ([], [], 1.0, None),
        ([1], [], 0.0, None),
        (list(range(10)), [*range(10), *range(20, 40)], 1.0, 1.0),
    ],
)
def test_results_are_compared_by_overlap_and_order(
    before: list[int], after: list[int], shared: float, correlation: float | None
) -> None:
    assert overlap(before, after) == shared
    assert rank_correlation(before, after) == (None if correlation is None else pytest.approx(correlation))


def test_the_figures_of_a_step_are_means_over_its_queries() -> None:
    step = QueryComparison(0.1, 0)
    for sample in (QuerySample(1.0, 0.5, 10, 4, 0.8, 0.6, 10, 30), QuerySample(0.5, None, 8, 4, 0.6, 0.8, 20, 10)):
        step = step.with_sample(sample)
    assert (step.queries, step.overlap, step.rank_correlation) == (2, 0.75, 0.5)
    assert (step.results_before, step.results_after) == (9, 4)
    assert (step.confidence_before, step.confidence_after) == (0.7, 0.7)
    assert (step.ms_before, step.ms_after) == (15, 20)


def test_a_step_ends_after_enough_queries_or_an_hour() -> None:
    canary = Canary((0.1,), 0.3, 24).next_step(0)
    assert not canary.is_due(HOUR - 1)
    assert canary.is_due(HOUR)
    for _ in range(STEP_QUERIES):
        assert not canary.is_due(1)
        assert canary.current is not None
        canary = canary.with_current(canary.current.with_sample(QuerySample(0.9, 0.9, 3, 3, 0.5, 0.5, 1, 1)))
    assert canary.is_due(1)
    assert canary.problem is None


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        (QuerySample(0.2, None, 3, 3, 0.5, 0.5, 1, 1), "agree on 20%"),
        (None, "could not answer"),
    ],
)
def test_a_failing_step_ends_early(sample: QuerySample | None, problem: str) -> None:
    current, number = QueryComparison(0.1, 0), 0
    while not Canary((0.1,), 0.3, 24, (current,)).is_due(1):
        number += 1
        current = QueryComparison(0.1, 0, failures=number) if sample is None else current.with_sample(sample)
    assert number < STEP_QUERIES
    assert problem in (Canary((0.1,), 0.3, 24, (current,)).problem or "")
