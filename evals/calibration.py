"""Whether relevance and confidence mean what they say, whatever is searched.

Beside the questions of each set, the same questions are asked of something that cannot answer them: the next
conversation or document of the set, or the next set. Widening is measured on those questions that have an answer and
whose confidence is low.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from evals.results import Row
from evals.retrieval_runs import BEST, runs_over
from evals.retrieval_sets import is_right
from weft.capabilities.search.calibration import SURE, relevance
from weft.capabilities.search.model import DEFAULT_MIN_SCORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from evals.retrieval_runs import Answer, Runs

    Figures = NDArray[np.float64]

_SETS = ("locomo", "bfcl_memory", "metatool", "livemcp", "bfcl_live", "tau2_banking", "qmsum", "chunkeval")
# Of each set about so many questions are enough to tell.
_QUESTIONS = 250
_SURELY = 0.9
_UNANSWERABLE = 0.25
_BINS = 10
_DIGITS = 3
_MOST_LOST, _MOST_OFF = 0.01, 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """Questions of one set: asked where the answer is, and asked where it is not."""

    own: Sequence[Answer]
    foreign: Sequence[Answer]


def calibration(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    runs = runs_over(folder)
    samples = [_sample(runs, place) for place in range(len(_SETS))]
    yield from _relevance(samples)
    yield from _confidence(samples)
    yield from _widening([answer for sample in samples for answer in sample.own])


def _sample(runs: Runs, place: int) -> Sample:
    name = _SETS[place]
    answers = runs.answers(name)[:: max(1, len(runs.answers(name)) // _QUESTIONS)]
    corpora = list(runs.dataset(name).corpora)
    other = name if len(corpora) > 1 else _SETS[(place + 1) % len(_SETS)]
    elsewhere = list(runs.dataset(other).corpora)
    keys = [
        elsewhere[(corpora.index(answer.asked.corpus) + 1) % len(elsewhere)] if other == name else elsewhere[0]
        for answer in answers
    ]
    wanted = [(answer.asked, key, runs.view(other, key)) for answer, key in zip(answers, keys, strict=True)]
    return Sample(answers, runs.ask(runs.dataset(other), wanted))


def _relevance(samples: Sequence[Sample]) -> Iterator[Row]:
    """Two meanings of a score: how much a floor of 0.7 loses, and how sure 0.9 is."""
    right = [_scores_of_right(sample.own) for sample in samples]
    wrong = [_best_scores(sample.foreign) for sample in samples]
    lost = fmean(float(np.mean(scores < DEFAULT_MIN_SCORE)) for scores in right)
    yield _row("relevance.lost_below_0.7", lost, "of what answers", f"<= {_MOST_LOST}", met=lost <= _MOST_LOST)
    yes = fmean(float(np.mean(scores >= _SURELY)) for scores in right)
    no = fmean(float(np.mean(scores >= _SURELY)) for scores in wrong)
    share = yes / (yes + no)
    yield _row("relevance.right_from_0.9", share, "of as many of each", f">= {_SURELY}", met=share >= _SURELY)


def _scores_of_right(answers: Sequence[Answer]) -> Figures:
    """Return the scores of what is right and among the ten best."""
    scores = []
    for answer in answers:
        totals = dict(zip(answer.places.tolist(), relevance(answer.total).tolist(), strict=True))
        best = answer.best(answer.total)
        scores += [totals[place] for place in best if is_right(answer.asked, answer.corpus, place)]
    return np.array(scores)


def _best_scores(answers: Sequence[Answer]) -> Figures:
    return np.concatenate([np.sort(relevance(answer.total))[-BEST:] for answer in answers])


def _confidence(samples: Sequence[Sample]) -> Iterator[Row]:
    told, true, weight = [], [], []
    for sample in samples:
        told += [answer.ranking.confidence for answer in (*sample.own, *sample.foreign)]
        true += [answer.recall(answer.best(answer.total)) for answer in sample.own] + [0.0] * len(sample.foreign)
        weight += [1 / len(sample.own)] * len(sample.own)
        weight += [_UNANSWERABLE / len(sample.foreign)] * len(sample.foreign)
    off = _off(np.array(told), np.array(true), np.array(weight))
    yield _row("confidence.off_by", off, "mean of ten steps", f"<= {_MOST_OFF}", met=off <= _MOST_OFF)
    doubted = fmean(answer.ranking.confidence < SURE for sample in samples for answer in sample.foreign)
    wrongly = fmean(answer.ranking.confidence < SURE for sample in samples for answer in sample.own)
    yield Row("calibration.doubted_without_answer", round(doubted, _DIGITS), "of questions", wrongly, None, None)


def _off(told: Figures, true: Figures, weight: Figures) -> float:
    """Return how far what is told is from what is true, over ten steps of what is told, each by its weight."""
    step = np.minimum((told * _BINS).astype(int), _BINS - 1)
    weights, tolds, trues = (np.bincount(step, each, _BINS) for each in (weight, weight * told, weight * true))
    return float(np.abs(tolds - trues).sum() / weights.sum())


def _widening(answers: Sequence[Answer]) -> Iterator[Row]:
    """Beside what is shown in doubt: what would be shown without widening."""
    doubted = [answer for answer in answers if answer.ranking.widened]
    wide = fmean(answer.recall(answer.shown) for answer in doubted)
    narrow = fmean(answer.recall(_narrow(answer)) for answer in doubted)
    row = _row("widening.recall_in_doubt", wide, "of all shown", "above without", met=wide > narrow)
    yield Row(row.name, row.value, row.unit, round(narrow, _DIGITS), row.target, row.met)


def _narrow(answer: Answer) -> list[int]:
    return [each.number - 1 for each in answer.ranking.ranked[:BEST] if each.score >= DEFAULT_MIN_SCORE]


def _row(name: str, value: float, unit: str, target: str, *, met: bool) -> Row:
    return Row(f"calibration.{name}", round(value, _DIGITS), unit, None, target, met)
