"""Fits the constants of weft.capabilities.efficiency.calibration on answers whose evidence is known.

Logistic regression over the features of each item; every set counts equally. The model of words is fitted on all items,
the one with vectors on those that words leave in doubt. The threshold is the one with the best mean F1.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evals.calibration_fit import logistic_regression
from evals.efficiency_cases import answer_cases
from evals.results import Row
from evals.vector_cache import VectorCache
from weft.capabilities.efficiency.calibration import UseModel, by_likeness, by_words, figures
from weft.capabilities.efficiency.model import ScoredPrompt
from weft.capabilities.efficiency.scoring import EMBEDDED_CHARACTERS, answer_parts, compare, in_doubt
from weft.capabilities.language_models.answers import ModelAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.calibration_cases import Figures
    from evals.efficiency_cases import AnswerCase
    from weft.capabilities.efficiency.scoring import ComparedItem

_THRESHOLDS = tuple(np.arange(0.1, 0.7, 0.02))
_DIGITS = 2


class ComparedCase(NamedTuple):
    """A case with its items compared, which of them are gold, and the likeness of those in doubt, by place."""

    case: AnswerCase
    compared: list[ComparedItem]
    gold: list[bool]
    likeness: dict[int, float]


class FittedUse(NamedTuple):
    """Both models and the threshold."""

    words: UseModel
    vectors: UseModel
    threshold: float

    def likelihoods(self, case: ComparedCase) -> list[float]:
        return [
            by_likeness(each.features, case.likeness[place], self.vectors)
            if place in case.likeness
            else by_words(each.features, self.words)
            for place, each in enumerate(case.compared)
        ]


def efficiency_fit(folder: Path | None) -> Iterator[Row]:
    """Yield the fitted constants."""
    if folder is None:
        return
    found = fitted(compared_cases(asyncio.run(answer_cases(folder))))
    for name, model in (("words", found.words), ("vectors", found.vectors)):
        for feature, value in model._asdict().items():
            yield Row(f"efficiency_fit.{name}.{feature}", round(value, _DIGITS), "log-odds", None, None, None)
    yield Row("efficiency_fit.threshold", round(found.threshold, _DIGITS), "likelihood", None, None, None)


def compared_cases(cases: Sequence[AnswerCase]) -> list[ComparedCase]:
    """Compare every case that has gold evidence in its prompt as the product does."""
    vectors = VectorCache()
    return [_compared(case, vectors) for case in cases if case.gold]


def _compared(case: AnswerCase, vectors: VectorCache) -> ComparedCase:
    answer = ModelAnswer(case.answer)
    compared = compare(ScoredPrompt(case.items, case.task, 0, 0), answer)
    places = in_doubt(compared)
    likeness: dict[int, float] = {}
    if places:
        parts = vectors.of(answer_parts(case.task, answer))
        items = vectors.of([compared[place].item.text[:EMBEDDED_CHARACTERS] for place in places])
        likeness = dict(zip(places, (items @ parts.T).max(axis=1).tolist(), strict=True))
    return ComparedCase(case, compared, [each.item.ref in case.gold for each in compared], likeness)


def fitted(cases: Sequence[ComparedCase]) -> FittedUse:
    """Fit both models and the threshold."""
    every = [(case, place) for case in cases for place in range(len(case.compared))]
    doubtful = [(case, place) for case in cases for place in case.likeness]
    without = _model(every, has_likeness=False)
    found = FittedUse(without, _model(doubtful, has_likeness=True), 0.0)
    likelihoods = [found.likelihoods(case) for case in cases]
    best = max(_THRESHOLDS, key=lambda threshold: mean_f1(cases, likelihoods, threshold))
    return found._replace(threshold=float(best))


def _model(items: Sequence[tuple[ComparedCase, int]], *, has_likeness: bool) -> UseModel:
    features = np.array(
        [figures(case.compared[place].features, case.likeness.get(place, 0.0)) for case, place in items]
    )
    features = features if has_likeness else features[:, :-1]
    gold = np.array([float(case.gold[place]) for case, place in items])
    return UseModel(*logistic_regression(features, gold, _weights([case.case.name for case, _ in items])))


def _weights(names: Sequence[str]) -> Figures:
    """Return weights by which every set counts the same."""
    sizes = dict(zip(*np.unique(names, return_counts=True), strict=True))
    return np.array([1 / sizes[name] for name in names])


def mean_f1(cases: Sequence[ComparedCase], likelihoods: Sequence[Sequence[float]], threshold: float) -> float:
    """Return the mean F1 of the sets."""
    names = dict.fromkeys(case.case.name for case in cases)
    return float(
        np.mean(
            [
                agreement(
                    [(case, found) for case, found in zip(cases, likelihoods, strict=True) if case.case.name == name],
                    threshold,
                ).f1
                for name in names
            ]
        )
    )


class Agreement(NamedTuple):
    """Items that count as used against gold ones."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def agreement(cases: Sequence[tuple[ComparedCase, Sequence[float]]], threshold: float) -> Agreement:
    """Return how well the items at or above a threshold agree with the gold ones."""
    pairs = [
        (likelihood >= threshold, gold)
        for case, found in cases
        for likelihood, gold in zip(found, case.gold, strict=True)
    ]
    right = sum(used and gold for used, gold in pairs)
    used, wanted = sum(used for used, _ in pairs), sum(gold for _, gold in pairs)
    return Agreement(right / used if used else 0.0, right / wanted if wanted else 0.0)
