"""Queries, ranking weights and ranked chunks."""

from __future__ import annotations

from typing import Literal

import msgspec

from weftline.records.vocabulary import OmissionReason

DEFAULT_MIN_SCORE = 0.7
DEFAULT_TOP_K = 10
# Recency hardly predicts relevance, so by default it only breaks ties.
DEFAULT_RECENCY_WEIGHT = 0.02
DEFAULT_IMPORTANCE_WEIGHT = 0.15
DEFAULT_HALF_LIFE_DAYS = 30.0
# A search with less confidence is unsure.
CONFIDENT = 0.5
# A collection holds evidence from this probability on; below it is in doubt, and below the second one it holds none.
RELEVANT, DOUBTFUL = 0.3, 0.02
# A passage with a lower probability adds too little for its tokens. A turn of the reader's own conversation takes the
# place of another turn only, so it needs less, and is not in doubt.
MIN_PROBABILITY, MIN_TURN_PROBABILITY = 0.005, 0.0005
# More passages seldom add evidence, but cost tokens in every later call.
MAX_PASSAGE_TOKENS = 8_000
# Of a prompt whose caller named no budget: it did not say that it wants to spend more.
DEFAULT_PASSAGE_TOKENS = 3_000
# A passage that is as likely evidence as this gets its surroundings, and makes its document part of what a prompt
# without retrieval would contain.
LIKELY_PROBABILITY = 0.05
# One with this probability is worth more than older turns of a conversation that would fit as a whole.
STRONG_PROBABILITY = 0.2
# Penalties of a near-duplicate of a better result, and of a chunk of the same short document; they may add up.
DUPLICATE_PENALTY, SAME_DOCUMENT_PENALTY = -0.3, -0.15
# Half-way between the two.
DUPLICATE_THRESHOLD = (DUPLICATE_PENALTY + SAME_DOCUMENT_PENALTY) / 2


class RankingWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of signals other than relevance, and the minimum score of a result."""

    min_score: float = DEFAULT_MIN_SCORE
    recency_weight: float = DEFAULT_RECENCY_WEIGHT
    importance_weight: float = DEFAULT_IMPORTANCE_WEIGHT
    half_life_days: float = DEFAULT_HALF_LIFE_DAYS


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query, its time in microseconds, and what its results are for.

    ``purpose`` decides what is a result. An answer has the best candidates from the minimum score on, few of them if
    confidence is low, unless ``low_confidence``. A prompt gets what is probably evidence, and in doubt what perhaps is.
    ``max_results`` is the plan's limit; pins come in addition. ``complete``: return every pin, and every omitted
    candidate with its reason. ``tuned``: the caller chose the weights. ``in_doubt``: a prompt gets doubtful results.
    ``is_task``: the text was not written to search with, so that few shared words may be chance.
    """

    text: str
    asked_at: int
    top_k: int = DEFAULT_TOP_K
    max_results: int | None = None
    purpose: Literal["answer", "prompt"] = "answer"
    low_confidence: bool = False
    complete: bool = False
    weights: RankingWeights = RankingWeights()
    tuned: bool = False
    in_doubt: bool = True
    is_task: bool = False


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A ranked chunk. ``score`` is its calibrated relevance from 0 to 1; ``signals`` add up to ``evidence``.

    For a prompt, ``probability`` is that of being evidence. ``doubtful``: its collection probably holds none.
    """

    collection: str
    number: int
    score: float
    signals: dict[str, float]
    evidence: float = 0.0
    pinned: bool = False
    probability: float = 0.0
    doubtful: bool = False


def is_near_duplicate(ranked: Ranked) -> bool:
    """Return whether a chunk was penalised as near-duplicate of a better one."""
    return bool(ranked.signals.get("repetition", 0.0) < DUPLICATE_THRESHOLD)


class OmittedChunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A scored candidate that is not a result, and why."""

    collection: str
    number: int
    score: float
    reason: OmissionReason


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Ranked chunks, best first, and the confidence in them; pinned ones separately, whatever their score.

    ``relevant``: a candidate reached the minimum score, and for a prompt, is probably evidence. ``has_evidence``: for a
    prompt, whatever the minimum score is. ``unsure``: nothing did,
    or confidence is low. ``by_meaning``: False if only keywords were matched. Of a complete query, ``omitted`` are all
    other candidates, best first; ``pins_truncated``: there were more pins than its maximum.
    """

    ranked: list[Ranked]
    pinned: list[Ranked]
    confidence: float
    min_score: float
    unsure: bool
    relevant: bool
    has_evidence: bool = False
    searched: int = 0
    by_meaning: bool = True
    omitted: list[OmittedChunk] = []
    pins_truncated: bool = False
