"""Queries, ranking weights and ranked chunks."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

DEFAULT_MIN_SCORE = 0.7
DEFAULT_TOP_K = 10
# Recency hardly predicts relevance, so by default it only breaks ties.
DEFAULT_RECENCY_WEIGHT = 0.02
DEFAULT_IMPORTANCE_WEIGHT = 0.15
DEFAULT_HALF_LIFE_DAYS = 30.0


class RankingWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of signals other than relevance, and the minimum score of a result."""

    min_score: float = DEFAULT_MIN_SCORE
    recency_weight: float = DEFAULT_RECENCY_WEIGHT
    importance_weight: float = DEFAULT_IMPORTANCE_WEIGHT
    half_life_days: float = DEFAULT_HALF_LIFE_DAYS


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query, its time in microseconds, and the number of results.

    There may be more than ``top_k``, in doubt or because they are pinned, but never more than ``most``.
    """

    text: str
    asked_at: int
    top_k: int = DEFAULT_TOP_K
    most: int | None = None
    weighing: RankingWeights = RankingWeights()


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A ranked chunk. ``score`` is its calibrated relevance from 0 to 1; ``signals`` add up to ``evidence``."""

    collection: str
    number: int
    score: float
    signals: dict[str, Any]
    evidence: float = 0.0


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Ranked chunks, best first, and the confidence in them.

    ``widened`` tells that confidence was low, and that more was taken than was asked for, or less relevant;
    ``fallback`` that nothing was relevant and the most recent came instead; ``by_meaning`` whether meaning counted, or
    words alone.
    """

    ranked: list[Ranked]
    confidence: float
    min_score: float
    widened: bool = False
    fallback: Literal["recency"] | None = None
    searched: int = 0
    by_meaning: bool = True
