"""Calibration of score and confidence, for all sources.

The questions of each set are also asked of content that cannot answer them: the next conversation or document of the
set, or the next set. Widening is measured on questions that have an answer and a low confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from evals.results import Row
from evals.retrieval_runs import BEST, runs_over
from evals.retrieval_sets import is_relevant
from weft.capabilities.search.model import CONFIDENT, DEFAULT_MIN_SCORE
from weft.capabilities.search.selection import relevance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from evals.retrieval_runs import Answer, Runs

    Figures = NDArray[np.float64]

_SETS = ("locomo", "bfcl_memory", "metatool", "livemcp", "bfcl_live", "tau2_banking", "qmsum", "chunkeval")
# Approximate sample size per set.
_SAMPLE_SIZE = 250
_HIGH_SCORE = 0.9
_UNANSWERABLE_WEIGHT = 0.25
_BINS = 10
_DIGITS = 3
_MAX_LOST, _MAX_ERROR = 0.01, 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """Answers to the questions of one set, from content with the answer and from content without it."""

    answerable: Sequence[Answer]
    unanswerable: Sequence[Answer]


def calibration(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    runs = runs_over(folder)
    samples = [_sample(runs, place) for place in range(len(_SETS))]
    yield from _relevance(samples)
    yield from _confidence(samples)
    yield from _widening([answer for sample in samples for answer in sample.answerable])


def _sample(runs: Runs, place: int) -> Sample:
    name = _SETS[place]
    answers = runs.answers(name)[:: max(1, len(runs.answers(name)) // _SAMPLE_SIZE)]
    corpora = list(runs.dataset(name).corpora)
    other = name if len(corpora) > 1 else _SETS[(place + 1) % len(_SETS)]
    elsewhere = list(runs.dataset(other).corpora)
    keys = [
        elsewhere[(corpora.index(answer.question.corpus) + 1) % len(elsewhere)] if other == name else elsewhere[0]
        for answer in answers
    ]
    questions = [(answer.question, key, runs.view(other, key)) for answer, key in zip(answers, keys, strict=True)]
    return Sample(answers, runs.ask(runs.dataset(other), questions))


def _relevance(samples: Sequence[Sample]) -> Iterator[Row]:
    """Yield the share of relevant results below 0.7, and of results from 0.9 on the share that is relevant."""
    right = [_relevant_scores(sample.answerable) for sample in samples]
    wrong = [_best_scores(sample.unanswerable) for sample in samples]
    lost = fmean(float(np.mean(scores < DEFAULT_MIN_SCORE)) for scores in right)
    yield _row("relevance.lost_below_0.7", lost, "of relevant results", f"<= {_MAX_LOST}", met=lost <= _MAX_LOST)
    yes = fmean(float(np.mean(scores >= _HIGH_SCORE)) for scores in right)
    no = fmean(float(np.mean(scores >= _HIGH_SCORE)) for scores in wrong)
    share = yes / (yes + no)
    yield _row(
        "relevance.right_from_0.9", share, "with equally many of both", f">= {_HIGH_SCORE}", met=share >= _HIGH_SCORE
    )


def _relevant_scores(answers: Sequence[Answer]) -> Figures:
    """Return the scores of relevant results among the ten best."""
    scores = []
    for answer in answers:
        totals = dict(zip(answer.places.tolist(), relevance(answer.total).tolist(), strict=True))
        best = answer.best(answer.total)
        scores += [totals[place] for place in best if is_relevant(answer.question, answer.corpus, place)]
    return np.array(scores)


def _best_scores(answers: Sequence[Answer]) -> Figures:
    return np.concatenate([np.sort(relevance(answer.total))[-BEST:] for answer in answers])


def _confidence(samples: Sequence[Sample]) -> Iterator[Row]:
    predicted, true, weight = [], [], []
    for sample in samples:
        predicted += [answer.ranking.confidence for answer in (*sample.answerable, *sample.unanswerable)]
        true += [answer.recall(answer.best(answer.total)) for answer in sample.answerable] + [0.0] * len(
            sample.unanswerable
        )
        weight += [1 / len(sample.answerable)] * len(sample.answerable)
        weight += [_UNANSWERABLE_WEIGHT / len(sample.unanswerable)] * len(sample.unanswerable)
    error = _calibration_error(np.array(predicted), np.array(true), np.array(weight))
    yield _row("confidence.off_by", error, "mean of ten bins", f"<= {_MAX_ERROR}", met=error <= _MAX_ERROR)
    uncertain = fmean(answer.ranking.confidence < CONFIDENT for sample in samples for answer in sample.unanswerable)
    wrongly_uncertain = fmean(
        answer.ranking.confidence < CONFIDENT for sample in samples for answer in sample.answerable
    )
    yield Row(
        "calibration.doubted_without_answer", round(uncertain, _DIGITS), "of questions", wrongly_uncertain, None, None
    )


def _calibration_error(predicted: Figures, true: Figures, weight: Figures) -> float:
    """Return the expected calibration error over ten bins of predicted confidence, weighted."""
    step = np.minimum((predicted * _BINS).astype(int), _BINS - 1)
    weights, predictions, trues = (
        np.bincount(step, each, _BINS) for each in (weight, weight * predicted, weight * true)
    )
    return float(np.abs(predictions - trues).sum() / weights.sum())


def _widening(answers: Sequence[Answer]) -> Iterator[Row]:
    """Compare recall with and without widening, for questions with low confidence."""
    uncertain = [answer for answer in answers if answer.ranking.widened]
    wide = fmean(answer.recall(answer.shown) for answer in uncertain)
    narrow = fmean(answer.recall(_narrow(answer)) for answer in uncertain)
    row = _row("widening.recall_in_doubt", wide, "of all results", "above without", met=wide > narrow)
    yield Row(row.name, row.value, row.unit, round(narrow, _DIGITS), row.target, row.met)


def _narrow(answer: Answer) -> list[int]:
    return [each.number - 1 for each in answer.ranking.ranked[:BEST] if each.score >= DEFAULT_MIN_SCORE]


def _row(name: str, value: float, unit: str, target: str, *, met: bool) -> Row:
    return Row(f"calibration.{name}", round(value, _DIGITS), unit, None, target, met)
