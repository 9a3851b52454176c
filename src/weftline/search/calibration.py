"""Calibrated score and confidence of ranked candidates.

Both are functions of a few features of the ranking. Their constants were fitted on all evaluation sets together, with
questions that have an answer and questions that have none: ``make evals ARGS=calibration_fit`` prints them, and ``make
evals ARGS=calibration`` checks them, also on sets that were left out of the fit.
"""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weftline.search.index_view import Floats
    from weftline.search.scoring import Scores

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
