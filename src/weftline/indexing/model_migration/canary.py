"""Canary queries: a growing share of a tenant's queries is answered by the new model before all of them are.

Each such query is answered by both models, one after the other, until the step has enough of them; only figures are
kept, never the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

# Compared queries that end a step, and how long it waits for them.
STEP_QUERIES = 30
_STEP_MICROS = 3_600_000_000
# Compared queries after which a bad model is stopped, before its step ends.
_MIN_QUERIES = 10
# Tolerated share of queries that the new model could not answer.
_MAX_FAILURES = 0.1
_TOP_K = 10
_HOUR_MICROS = 3_600_000_000

MEANS = (
    "overlap",
    "results_before",
    "results_after",
    "confidence_before",
    "confidence_after",
    "ms_before",
    "ms_after",
)

Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class QuerySample(msgspec.Struct, frozen=True):
    """One query answered by both models. ``correlation`` is missing if they have fewer than two results in common."""

    overlap: float
    correlation: float | None
    results_before: float
    results_after: float
    confidence_before: float
    confidence_after: float
    ms_before: float
    ms_after: float


class QueryComparison(msgspec.Struct, frozen=True):
    """Means over the queries of a step that both models answered.

    Overlap and failures decide. Confidence does not: cosines of two models are not on the same scale.

    ``overlap``: see overlap(). ``rank_correlation``: Kendall's tau of the results in common, -1 to 1. ``failures``:
    queries that the new model could not answer, so that the old one did.
    """

    share: float
    started_at: int
    queries: int = 0
    failures: int = 0
    overlap: float = 0.0
    rank_correlation: float = 0.0
    correlated: int = 0
    results_before: float = 0.0
    results_after: float = 0.0
    confidence_before: float = 0.0
    confidence_after: float = 0.0
    ms_before: float = 0.0
    ms_after: float = 0.0

    def with_sample(self, sample: QuerySample) -> QueryComparison:
        """Return the means with one more query."""
        count = self.queries + 1
        means = {name: _mean(getattr(self, name), getattr(sample, name), count) for name in MEANS}
        if sample.correlation is not None:
            means["rank_correlation"] = _mean(self.rank_correlation, sample.correlation, self.correlated + 1)
        correlated = self.correlated + (sample.correlation is not None)
        return structs.replace(self, **means, queries=count, correlated=correlated)

    def problem(self, min_overlap: float) -> str | None:
        """Return why the new model is not good enough; None if it is, or if there are no queries."""
        asked = self.queries + self.failures
        if asked and self.failures / asked > _MAX_FAILURES:
            return f"The new model could not answer {self.failures} of {asked} queries."
        if self.queries and self.overlap < min_overlap:
            return f"The models agree on {self.overlap:.0%} of results, less than {min_overlap:.0%}."
        return None


class Canary(msgspec.Struct, frozen=True):
    """The shares of queries, step by step, and the comparison of each step so far; the last one is the current.

    The old vectors stay for ``keep_hours`` after the switch. ``ended_at``: when queries last used the new model, if
    the migration ended without it.
    """

    shares: tuple[float, ...]
    min_overlap: float
    keep_hours: int
    steps: tuple[QueryComparison, ...] = ()
    ended_at: int | None = None

    @property
    def current(self) -> QueryComparison | None:
        return self.steps[-1] if self.steps else None

    @property
    def is_last(self) -> bool:
        """Tell whether all queries follow after the current step."""
        return len(self.steps) >= len(self.shares)

    @property
    def keep_micros(self) -> int:
        return self.keep_hours * _HOUR_MICROS

    def next_step(self, now: int) -> Canary:
        """Return it with the next share of queries."""
        step = QueryComparison(self.shares[len(self.steps)], now)
        return structs.replace(self, steps=(*self.steps, step))

    def with_current(self, current: QueryComparison) -> Canary:
        return structs.replace(self, steps=(*self.steps[:-1], current))

    @property
    def problem(self) -> str | None:
        """Return why the current step fails; None if it does not, or has too few queries to tell before its end."""
        return None if self.current is None else self.current.problem(self.min_overlap)

    def is_due(self, now: int) -> bool:
        """Tell whether the current step has ended, or is failing already."""
        current = self.current
        if current is None:
            return True
        asked = current.queries + current.failures
        if asked >= STEP_QUERIES or now >= current.started_at + _STEP_MICROS:
            return True
        return asked >= _MIN_QUERIES and self.problem is not None


def overlap(before: Sequence[Hashable], after: Sequence[Hashable]) -> float:
    """Return the share of the shorter list's first results that both have; 1 if both are empty, 0 if only one is.

    How many results reach the minimum score depends on the model's scale of cosines.
    """
    one, other = set(before[:_TOP_K]), set(after[:_TOP_K])
    if not (one and other):
        return float(not (one or other))
    return len(one & other) / min(len(one), len(other))


def rank_correlation(before: Sequence[Hashable], after: Sequence[Hashable]) -> float | None:
    """Return Kendall's tau of the first results in common; None if there are fewer than two."""
    place = {each: at for at, each in enumerate(after[:_TOP_K])}
    places = [place[each] for each in before[:_TOP_K] if each in place]
    pairs = [(one, other) for at, one in enumerate(places) for other in places[at + 1 :]]
    if not pairs:
        return None
    return sum(1 if one < other else -1 for one, other in pairs) / len(pairs)


def _mean(mean: float, value: float, count: int) -> float:
    return round(mean + (value - mean) / count, 6)
