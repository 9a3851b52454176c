"""Calibrated score and confidence of ranked candidates.

Both are functions of a few features of the ranking. Their constants were fitted on all evaluation sets together, with
questions that have an answer and questions that have none: ``make evals ARGS=calibration_fit`` prints them, and ``make
evals ARGS=calibration`` checks them, also on sets that were left out of the fit.
"""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weftline.search.model import DOUBTFUL, MAX_PASSAGE_TOKENS, MIN_PROBABILITY, MIN_TURN_PROBABILITY, RELEVANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weftline.search.model import Floats
    from weftline.search.scoring import Scores

    Rows = NDArray[np.bool_]


# Results from this score on are reliable: nine of ten are right, even if half of all queries have no answer.
RELIABLE_SCORE = 0.9
# Candidates of each side that the speaker gap compares.
_COMPARED = 10
# The gap can exclude a speaker only so far: others may report what a speaker did.
MIN_SPEAKER_GAP = -0.06


class RankingFeatures(NamedTuple):
    """What score and confidence depend on besides the total of a candidate.

    ``best`` is the highest total, ``non_lexical`` its part without keyword matches, because words alone are shared by
    chance. ``lexical_margin`` and ``semantic_margin`` are the best candidate's signals over the highest ones of any
    other. ``speaker_gap``: if the query names a speaker, how much better the best messages of that speaker match the
    rest of the query than those of others do; negative if it is others' topic.
    """

    best: float
    non_lexical: float
    lexical_margin: float
    semantic_margin: float
    speaker_gap: float | None = None


class Coefficients(NamedTuple):
    """Logistic model over features of the same names."""

    intercept: float
    non_lexical: float
    lexical_margin: float
    semantic_margin: float

    def probability(self, features: RankingFeatures) -> float:
        return _logistic(
            self.intercept
            + self.non_lexical * features.non_lexical
            + self.lexical_margin * features.lexical_margin
            + self.semantic_margin * features.semantic_margin
        )


class SpeakerModel(NamedTuple):
    """Logistic model of the speaker gap: whether what the query asks about belongs to the speaker that it names."""

    intercept: float
    gap: float

    def probability(self, features: RankingFeatures) -> float:
        if features.speaker_gap is None:
            return 1.0
        return _logistic(self.intercept + self.gap * max(features.speaker_gap, MIN_SPEAKER_GAP))


class CalibrationModel(NamedTuple):
    """All fitted constants: whether the first ten contain an answer, whether the first is one, and of which speaker."""

    found: Coefficients
    first: Coefficients
    speaker: SpeakerModel


FITTED = CalibrationModel(
    found=Coefficients(-2.73, 8.25, 13.7, 4.49),
    first=Coefficients(-2.11, 3.45, 14.69, 12.03),
    speaker=SpeakerModel(0.26, 26.04),
)
# A result scores less if the confidence is below one half: its log-odds count with this weight, at most this many.
_CONFIDENCE_WEIGHT, _MAX_LOG_ODDS = 0.1, 5.0
# Score of a result as a piecewise linear function of its total and the confidence. At 0.7: of the relevant results
# among the first ten, fewer than 1 % score lower. Only a first result that stands out reaches RELIABLE_SCORE.
_TOTALS = (-0.5, 0.22, 1.2, 4.0)
_SCORES = (0.0, 0.7, 0.85, 0.89)


class Calibration(NamedTuple):
    """Confidence in a ranking, and the scores of its candidates.

    ``first`` is the probability that the best candidate, with the total ``best``, is right.
    """

    confidence: float
    first: float
    best: float

    def scores(self, totals: Floats) -> Floats:
        """Return the score of each total, from 0 to 1. It grows with the total."""
        doubt = _CONFIDENCE_WEIGHT * min(_log_odds(self.confidence), 0.0)
        scores = np.interp(totals + doubt, _TOTALS, _SCORES)
        if self.first >= RELIABLE_SCORE:
            scores = np.where(totals >= self.best, self.first, scores)
        return np.where(totals > 0, scores, 0.0).astype(np.float32)


def calibrate(features: RankingFeatures | None, model: CalibrationModel = FITTED) -> Calibration:
    """Return the calibration of a ranking; ``features`` are None if it is empty."""
    if features is None:
        return Calibration(0.0, 0.0, 0.0)
    speaker = model.speaker.probability(features)
    return Calibration(
        confidence=model.found.probability(features) * speaker,
        first=model.first.probability(features) * speaker,
        best=features.best,
    )


def ranking_features(by_view: Sequence[Scores], *, by_meaning: bool) -> RankingFeatures | None:
    """Return the features of a ranking of the candidates of all views, None if there are none.

    Without semantic signals, half of the total counts as non-lexical, and no first result stands out by meaning.
    """
    totals = _joined(by_view, "")
    if not len(totals):
        return None
    best = int(np.argmax(totals))
    top = float(totals[best])
    lexical = _joined(by_view, "lexical")
    keywords = float(lexical[best] + _joined(by_view, "lexical_around")[best])
    return RankingFeatures(
        best=top,
        non_lexical=top - keywords if by_meaning else top / 2,
        lexical_margin=_margin(lexical, best),
        semantic_margin=_margin(_joined(by_view, "semantic"), best) if by_meaning else 0.0,
        speaker_gap=_speaker_gap(by_view),
    )


def _joined(by_view: Sequence[Scores], name: str) -> Floats:
    """Return a signal of the candidates of all views, or their totals."""
    found = [scores.signals[name] if name else scores.total for scores in by_view]
    return np.concatenate(found) if found else np.empty(0, np.float32)


def _margin(values: Floats, best: int) -> float:
    return float(values[best] - np.delete(values, best).max(initial=0.0))


def _speaker_gap(by_view: Sequence[Scores]) -> float | None:
    """Return by how much the best candidates of the named speaker exceed those of others, without the speaker bonus."""
    named = [scores for scores in by_view if "speaker" in scores.signals]
    if not named:
        return None
    is_speaker: NDArray[np.bool_] = np.concatenate([scores.signals["speaker"] > 0 for scores in named])
    matches = np.concatenate([scores.total - scores.signals["speaker"] for scores in named])
    own, other = np.sort(matches[is_speaker])[::-1], np.sort(matches[~is_speaker])[::-1]
    compared = min(len(own), len(other), _COMPARED)
    return float(own[:compared].mean() - other[:compared].mean()) if compared else None


def _logistic(log_odds: float) -> float:
    return 1 / (1 + exp(-log_odds))


def _log_odds(probability: float) -> float:
    limit = _logistic(-_MAX_LOG_ODDS)
    limited = min(max(probability, limit), 1 - limit)
    return log(limited / (1 - limited))


# Probability that passages are evidence for a query: it decides which passages a prompt gets, whatever its budget.
#
# A collection is judged first, by its best candidate, then each candidate by how far it is behind that one.
# Collections are judged apart, so that a match in one does not admit passages of another. The constants were fitted on
# the evaluation sets, with questions that a collection answers and questions that it does not: ``make evals
# ARGS=relevance_fit`` fits them again, and ``make evals ARGS=relevance`` measures sets by constants fitted without
# them.

# From this probability on that a collection holds evidence its passages may have the whole room. The less sure it is,
# the less room is worth it: this power of the probability.
_SURE, _POWER = 0.7, 8
# Shared words of a short query are mostly chance: with this many terms half of the keyword matches count.
_HALF_TERMS = 4
# The best of few candidates is less often high by chance. Fewer than this are not in any evaluation set.
_MIN_SIZE = 30
_MAX_EVIDENCE = 4.0
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


FITTED_EVIDENCE = EvidenceModel()


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
    model: EvidenceModel = FITTED_EVIDENCE,
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
    bounded = min(max(log_odds, -_MAX_EVIDENCE), _MAX_EVIDENCE)
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
