"""What is asked, and what was found of it before anyone reads it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

DEFAULT_MIN_SCORE = 0.7
DEFAULT_TOP_K = 10
# Newness hardly tells what answers a question, so that by default it only decides between equals.
DEFAULT_RECENCY_WEIGHT = 0.02
DEFAULT_IMPORTANCE_WEIGHT = 0.15
# After so many days something counts as half as new.
DEFAULT_HALF_LIFE_DAYS = 30.0


class RankingWeights(msgspec.Struct, frozen=True, kw_only=True):
    """What counts beside relevance, and from which relevance on something is a result: tunable by whoever asks."""

    min_score: float = DEFAULT_MIN_SCORE
    recency_weight: float = DEFAULT_RECENCY_WEIGHT
    importance_weight: float = DEFAULT_IMPORTANCE_WEIGHT
    half_life_days: float = DEFAULT_HALF_LIFE_DAYS


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for, at which timestamp (microseconds), and how many results are wanted.

    There may be more than ``top_k``, in doubt or because they are pinned, but never more than ``most``.
    """

    text: str
    asked_at: int
    top_k: int = DEFAULT_TOP_K
    most: int | None = None
    weighing: RankingWeights = RankingWeights()


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that was found. ``score`` is its calibrated relevance from 0 to 1; ``signals`` add up to ``evidence``."""

    collection: str
    number: int
    score: float
    signals: dict[str, Any]
    evidence: float = 0.0


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, the best first, and how sure that is.

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
