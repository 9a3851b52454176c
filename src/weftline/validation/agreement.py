"""Statistics of a review: confidence of a share, and agreement of reviewers beyond chance."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of the normal distribution, for 95 %.
_Z = 1.959964


class ConfidenceInterval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float


def wilson_interval(successes: int, trials: int) -> ConfidenceInterval:
    """Return the 95 % score interval of a share, which also holds for few trials and for shares near 0 or 1."""
    if not trials:
        return ConfidenceInterval(0.0, 1.0)
    share, square = successes / trials, _Z * _Z
    centre = share + square / (2 * trials)
    margin = _Z * sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    scale = 1 + square / trials
    return ConfidenceInterval(max((centre - margin) / scale, 0.0), min((centre + margin) / scale, 1.0))


def cohen_kappa(ratings: Sequence[Sequence[str]]) -> float | None:
    """Return the agreement of two raters, one pair of categories for each item; None if both use one category only."""
    observed = sum(one == other for one, other in ratings) / len(ratings)
    first, second = Counter(one for one, _ in ratings), Counter(other for _, other in ratings)
    expected = sum(first[category] * second[category] for category in first) / len(ratings) ** 2
    return _beyond_chance(observed, expected)


def fleiss_kappa(ratings: Sequence[Sequence[str]]) -> float | None:
    """Return the agreement of several raters, as many for each item; None if they use one category only."""
    raters = len(ratings[0])
    totals = Counter(category for item in ratings for category in item)
    pairs = raters * (raters - 1)
    observed = sum(sum(n * (n - 1) for n in Counter(item).values()) / pairs for item in ratings) / len(ratings)
    expected = sum((total / (len(ratings) * raters)) ** 2 for total in totals.values())
    return _beyond_chance(observed, expected)


def _beyond_chance(observed: float, expected: float) -> float | None:
    return None if expected >= 1 else (observed - expected) / (1 - expected)
