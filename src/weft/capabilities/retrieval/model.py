"""What is asked, and what was found of it before anyone reads it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

DEFAULT_FLOOR = 0.7
DEFAULT_TOP_K = 10
# Newness hardly tells what answers a question, so that by default it only decides between equals.
DEFAULT_RECENCY_WEIGHT = 0.02
DEFAULT_IMPORTANCE_WEIGHT = 0.15

Relevance = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Weighing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What counts beside relevance, and from which relevance on something is a result: tunable by whoever asks."""

    floor: Annotated[
        Relevance, msgspec.Meta(description="What is less relevant than this is left out, unless too little is left.")
    ] = DEFAULT_FLOOR
    recency_weight: Annotated[Relevance, msgspec.Meta(description="How much it counts that something is new.")] = (
        DEFAULT_RECENCY_WEIGHT
    )
    half_life_days: Annotated[
        float, msgspec.Meta(gt=0, le=36_500, description="After so many days something counts as half as new.")
    ] = 30.0
    importance_weight: Annotated[
        Relevance, msgspec.Meta(description="How much it counts that something is important.")
    ] = DEFAULT_IMPORTANCE_WEIGHT


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for, at which moment (microseconds), and how many results are wanted.

    There may be more than ``top_k``, in doubt or because they are pinned, but never more than ``most``.
    """

    text: str
    asked_at: int
    top_k: int = DEFAULT_TOP_K
    most: int | None = None
    weighing: Weighing = Weighing()


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that was found. ``score`` is its calibrated relevance from 0 to 1; ``signals`` add up to ``evidence``."""

    shelf: str
    number: int
    score: float
    signals: dict[str, Any]
    evidence: float = 0.0


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, the best first, and how sure that is.

    ``widened`` tells that confidence was low, so that more was taken, from a lower floor, than was asked for;
    ``fallback`` that nothing was relevant and the most recent came instead. ``candidates`` is how many were looked at;
    ``by_meaning`` tells whether meaning counted, or words alone.
    """

    ranked: list[Ranked]
    confidence: float
    floor: float
    widened: bool = False
    fallback: Literal["recency"] | None = None
    candidates: int = 0
    searched: int = 0
    by_meaning: bool = True
