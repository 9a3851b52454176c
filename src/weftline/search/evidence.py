"""Probability that passages are evidence for a query: it decides which passages a prompt gets, whatever its budget.

A collection is judged first, by its best candidate, then each candidate by how far it is behind that one. Collections
are judged apart, so that a match in one does not admit passages of another. The constants were fitted on the evaluation
sets, with questions that a collection answers and questions that it does not: ``make evals ARGS=relevance_fit`` fits
them again, and ``make evals ARGS=relevance`` measures sets by constants fitted without them.
"""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weftline.search.calibration import RELIABLE_SCORE, calibrate
from weftline.search.model import (
    DOUBTFUL,
    MAX_PASSAGE_TOKENS,
    MIN_PROBABILITY,
    MIN_TURN_PROBABILITY,
    RELEVANT,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weftline.search.calibration import RankingFeatures
    from weftline.search.index_view import Floats

    Rows = NDArray[np.bool_]

# From this probability on that a collection holds evidence its passages may have the whole room. The less sure it is,
# the less room is worth it: this power of the probability.
_SURE, _POWER = 0.7, 8
# Shared words of a short query are mostly chance: with this many terms half of the keyword matches count.
_HALF_TERMS = 4
# The best of few candidates is less often high by chance. Fewer than this are not in any evaluation set.
_MIN_SIZE = 30
_MAX_LOG_ODDS = 4.0
# What the reader's own conversation says about a query is in the prompt anyway, so that other content has to say it
# better: between these strengths of its best turn each unit costs these log-odds. Turns about something else are weaker
# than the first, in other languages than English hardly; a question that was asked before may be as strong as any.
_RELATED_TURN, _COVERING_TURN, _COVERAGE = 0.4, 0.6, 8.0
# A single shared word stands out by chance.
_MIN_TERMS = 2


class EvidenceModel(NamedTuple):
    """Logistic models: whether a collection holds evidence, and whether a candidate is evidence.

    ``strength`` is that of the best candidate, ``size`` the logarithm of the collection's. ``relevance`` are the
    log-odds of the first model, ``gap`` is the distance to the best candidate, ``rank`` the logarithm of the rank.
    """

    collection: float = -4.94
    strength: float = 15.12
    size: float = -0.61
    candidate: float = -2.19
    relevance: float = 0.65
    gap: float = -6.21
    rank: float = -0.29


FITTED = EvidenceModel()


class CollectionEvidence(NamedTuple):
    """Probability that a collection holds evidence for a query, and that each of its candidates is some.

    ``first``: the place of a candidate that stands out so far that it is evidence in any case.
    """

    relevance: float
    probabilities: Floats
    first: int | None = None

    def admitted(self, tokens: NDArray[np.int32], *, conversation: bool = False) -> Rows:
        """Return which candidates may go into a prompt; ``conversation``: they are turns of the reader's own."""
        least = MIN_TURN_PROBABILITY if conversation else MIN_PROBABILITY
        chosen: Rows = (self.relevance >= DOUBTFUL) & (self.probabilities >= least)
        if self.relevance >= RELEVANT and not conversation:
            best = np.argsort(-self.probabilities, kind="stable")
            room = MAX_PASSAGE_TOKENS * min(1.0, self.relevance / _SURE) ** _POWER
            chosen[best[np.cumsum(tokens[best]) > max(room, tokens[best[0]])]] = False
        if self.first is not None:
            chosen[self.first] = True
        return chosen

    def doubtful(self, *, conversation: bool = False) -> Rows:
        """Return which candidates are doubtful."""
        found = np.full(len(self.probabilities), self.relevance < (DOUBTFUL if conversation else RELEVANT))
        if self.first is not None:
            found[self.first] = False
        return found


def evidence(
    features: RankingFeatures | None,
    totals: Floats,
    size: int,
    terms: int,
    model: EvidenceModel = FITTED,
    conversation: float = 0.0,
) -> CollectionEvidence:
    """Judge a collection of ``size`` rows and its candidates by their totals; ``terms`` is the length of the query.

    ``conversation`` is the strength of the best turn of the reader's own conversation, if that is another collection.
    """
    if features is None:
        return CollectionEvidence(0.0, np.zeros(len(totals), np.float32))
    first = calibrate(features).first if terms >= _MIN_TERMS else 0.0
    log_odds = model.collection + model.strength * strength_of(features, terms) + model.size * log_size(size)
    log_odds -= _COVERAGE * (min(max(conversation, _RELATED_TURN), _COVERING_TURN) - _RELATED_TURN)
    bounded = min(max(log_odds, -_MAX_LOG_ODDS), _MAX_LOG_ODDS)
    gap, rank = distances(totals)
    candidates = model.candidate + model.relevance * bounded + model.gap * gap + model.rank * rank
    probabilities = (1 / (1 + np.exp(-candidates))).astype(np.float32)
    best = int(np.argmax(totals))
    if first < RELIABLE_SCORE:
        return CollectionEvidence(1 / (1 + exp(-log_odds)), probabilities)
    probabilities[best] = max(probabilities[best], first)
    return CollectionEvidence(1 / (1 + exp(-log_odds)), probabilities, best)


def strength_of(features: RankingFeatures, terms: int) -> float:
    """Return the total of the best candidate, with less of its keyword matches the shorter the query is."""
    keywords = features.best - features.non_lexical
    return features.non_lexical + keywords * terms / (terms + _HALF_TERMS)


def log_size(size: int) -> float:
    return log(max(size, _MIN_SIZE))


def distances(totals: Floats) -> tuple[Floats, Floats]:
    """Return for each candidate its distance to the best one, and the logarithm of its rank."""
    order = np.argsort(-totals, kind="stable")
    rank = np.empty(len(totals), np.float32)
    rank[order] = np.log1p(np.arange(len(totals), dtype=np.float32))
    return (totals.max(initial=0.0) - totals).astype(np.float32), rank
