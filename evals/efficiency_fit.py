"""Fits the constants of weft.capabilities.efficiency.calibration on answers whose evidence is known.

Only the development half of the conversations, documents and claims is used. Logistic regression over the features of
each part of a prompt; every set counts equally. The model of words is fitted on all parts, the one with vectors on
those that words leave in doubt. The threshold and the length of a quotation are those with the best mean F1, the
constants of the estimate without an answer those by which its shares of tokens are nearest to the gold ones.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evals.calibration_fit import logistic_regression
from evals.efficiency_cases import answer_cases
from evals.results import Row
from evals.vector_cache import VectorCache
from weft.capabilities.efficiency.calibration import UseModel, by_likeness, by_words, figures, is_quotation
from weft.capabilities.efficiency.model import ScoredPrompt
from weft.capabilities.efficiency.scoring import answer_parts, compare, in_doubt
from weft.capabilities.language_models.answers import ModelAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.calibration_cases import Figures
    from evals.efficiency_cases import AnswerCase
    from weft.capabilities.efficiency.scoring import ComparedPart

_THRESHOLDS = tuple(np.arange(0.06, 0.8, 0.02))
_QUOTED_TERMS = (4, 5, 6, 8, 10)
_DIGITS = 2


class ComparedCase(NamedTuple):
    """A case with the parts of its prompt compared: which are gold, and their cosines to the answer."""

    case: AnswerCase
    compared: list[ComparedPart]
    gold: list[bool]
    cosines: list[float]

    @property
    def is_development(self) -> bool:
        """Tell by a hash whether its conversation, document or claim is in the half that constants are fitted on."""
        return hashlib.sha256(self.case.group.encode()).digest()[0] % 2 == 0


class FittedUse(NamedTuple):
    """Both models, the threshold, and the length of a quotation."""

    words: UseModel
    vectors: UseModel | None
    threshold: float
    quoted: int

    def likelihoods(self, case: ComparedCase) -> list[float]:
        """Return the likelihood that each part was used, as the product computes it."""
        parts = [each._replace(likelihood=by_words(each.features, self.words)) for each in case.compared]
        doubtful = set() if self.vectors is None else {each.features.content for each in in_doubt(parts)}
        return [
            by_likeness(each.features, cosine, self.vectors)
            if self.vectors is not None and each.features.content in doubtful
            else each.likelihood
            for each, cosine in zip(parts, case.cosines, strict=True)
        ]

    def used(self, case: ComparedCase, likelihoods: Sequence[float]) -> list[bool]:
        return [
            likelihood >= self.threshold or is_quotation(each.features, self.quoted)
            for each, likelihood in zip(case.compared, likelihoods, strict=True)
        ]


class Agreement(NamedTuple):
    """Parts that count as used against gold ones, as counts of a table of two by two."""

    both: int
    only_used: int
    only_gold: int
    neither: int

    @property
    def precision(self) -> float:
        return _ratio(self.both, self.both + self.only_used)

    @property
    def recall(self) -> float:
        return _ratio(self.both, self.both + self.only_gold)

    @property
    def f1(self) -> float:
        return _ratio(2 * self.both, 2 * self.both + self.only_used + self.only_gold)

    @property
    def kappa(self) -> float:
        """Return Cohen's kappa: agreement beyond chance."""
        total = sum(self)
        used, gold = self.both + self.only_used, self.both + self.only_gold
        chance = _ratio(used * gold + (total - used) * (total - gold), total * total)
        return _ratio(_ratio(self.both + self.neither, total) - chance, 1 - chance)


def efficiency_fit(folder: Path | None) -> Iterator[Row]:
    """Yield the fitted constants."""
    if folder is None:
        return
    cases = [case for case in compared_cases(asyncio.run(answer_cases(folder))) if case.is_development]
    found = fitted(cases)
    for name, model in (("words", found.words), ("vectors", found.vectors)):
        for feature, value in model._asdict().items() if model is not None else ():
            yield Row(f"efficiency_fit.{name}.{feature}", round(value, _DIGITS), "log-odds", None, None, None)
    yield Row("efficiency_fit.threshold", round(found.threshold, _DIGITS), "likelihood", None, None, None)
    yield Row("efficiency_fit.quoted_terms", found.quoted, "terms", None, None, None)
    intercept, slope, unranked = fitted_estimate(cases)
    yield Row("efficiency_fit.scores.intercept", round(intercept, _DIGITS), "log-odds", None, None, None)
    yield Row("efficiency_fit.scores.slope", round(slope, _DIGITS), "log-odds", None, None, None)
    yield Row("efficiency_fit.unranked_use", round(unranked, _DIGITS + 1), "of tokens", None, None, None)


def compared_cases(cases: Sequence[AnswerCase]) -> list[ComparedCase]:
    """Compare every case that has gold evidence in its prompt as the product does."""
    vectors = VectorCache()
    return [compared_case(case, vectors) for case in cases if case.gold]


def compared_case(case: AnswerCase, vectors: VectorCache) -> ComparedCase:
    answer = ModelAnswer(case.answer)
    compared = compare(ScoredPrompt(case.items, case.task, 0, 0), answer)
    said, texts = vectors.of(answer_parts(case.task, answer)), vectors.of([each.text for each in compared])
    gold = [case.items[each.place].ref in case.gold for each in compared]
    return ComparedCase(case, compared, gold, (texts @ said.T).max(axis=1).tolist())


def fitted(cases: Sequence[ComparedCase]) -> FittedUse:
    """Fit both models, the threshold and the length of a quotation."""
    words = _model([(case, place) for case in cases for place in range(len(case.compared))], has_likeness=False)
    doubtful = [(case, place) for case in cases for place in _doubtful(case, words)]
    without = FittedUse(words, _model(doubtful, has_likeness=True), 0.0, 0)
    likelihoods = [without.likelihoods(case) for case in cases]
    choices = [
        without._replace(threshold=float(threshold), quoted=quoted)
        for threshold in _THRESHOLDS
        for quoted in _QUOTED_TERMS
    ]
    return max(choices, key=lambda choice: _mean_f1(cases, likelihoods, choice))


def _doubtful(case: ComparedCase, words: UseModel) -> Iterator[int]:
    parts = [each._replace(likelihood=by_words(each.features, words)) for each in case.compared]
    contents = {each.features.content for each in in_doubt(parts)}
    return (place for place, each in enumerate(parts) if each.features.content in contents)


def _model(parts: Sequence[tuple[ComparedCase, int]], *, has_likeness: bool) -> UseModel:
    features = np.array([figures(case.compared[place].features, case.cosines[place]) for case, place in parts])
    features = features if has_likeness else features[:, :-1]
    gold = np.array([float(case.gold[place]) for case, place in parts])
    return UseModel(*logistic_regression(features, gold, _weights([case.case.name for case, _ in parts])))


def _weights(names: Sequence[str]) -> Figures:
    """Return weights by which every set counts the same."""
    sizes = dict(zip(*np.unique(names, return_counts=True), strict=True))
    return np.array([1 / sizes[name] for name in names])


def _mean_f1(cases: Sequence[ComparedCase], likelihoods: Sequence[Sequence[float]], model: FittedUse) -> float:
    """Return the mean F1 of the sets."""
    by_set: dict[str, list[tuple[Sequence[bool], Sequence[bool]]]] = {}
    for case, found in zip(cases, likelihoods, strict=True):
        by_set.setdefault(case.case.name, []).append((model.used(case, found), case.gold))
    return float(np.mean([agreement(pairs).f1 for pairs in by_set.values()]))


def agreement(cases: Sequence[tuple[Sequence[bool], Sequence[bool]]]) -> Agreement:
    """Count how well what counts as used agrees with what is gold, over the parts of all cases."""
    used, gold = (np.concatenate([np.array(pair[which], bool) for pair in cases]) for which in (0, 1))
    return Agreement(
        both=int((used & gold).sum()),
        only_used=int((used & ~gold).sum()),
        only_gold=int((~used & gold).sum()),
        neither=int((~used & ~gold).sum()),
    )


def best_threshold(cases: Sequence[ComparedCase], values: Sequence[Sequence[float]], grid: Sequence[float]) -> float:
    """Return the threshold on one figure with the best mean F1 of the sets."""

    def mean_f1(threshold: float) -> float:
        by_set: dict[str, list[tuple[Sequence[bool], Sequence[bool]]]] = {}
        for case, found in zip(cases, values, strict=True):
            by_set.setdefault(case.case.name, []).append(([value >= threshold for value in found], case.gold))
        return float(np.mean([agreement(pairs).f1 for pairs in by_set.values()]))

    return max(grid, key=mean_f1)


def fitted_estimate(cases: Sequence[ComparedCase]) -> tuple[float, float, float]:
    """Return log-odds of use by the score of retrieval, and the gold share of tokens without a score."""
    scores, gold, names, weight = [], [], [], []
    unranked: dict[str, list[int]] = {}
    for case in cases:
        for item in case.case.items:
            score, is_gold = case.case.scores.get(item.ref), item.ref in case.case.gold
            if score is None:
                sums = unranked.setdefault(case.case.name, [0, 0])
                sums[0] += item.tokens * is_gold
                sums[1] += item.tokens
            else:
                scores.append([score])
                gold.append(float(is_gold))
                names.append(case.case.name)
                weight.append(item.tokens)
    intercept, slope = logistic_regression(np.array(scores), np.array(gold), _weights(names) * np.array(weight))
    return intercept, slope, float(np.mean([useful / total for useful, total in unranked.values()]))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
