"""Fits the constants of weftline.prompts.efficiency on answers whose evidence is known.

Only the development half of the conversations, documents and claims is used. Logistic regression over the features of
each part of a prompt; every set counts equally. The model of words is fitted on all parts, the one with vectors on
those that words leave in doubt. The threshold and the length of a quotation are those with the best mean F1.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evals.calibration_fit import logistic_regression
from evals.efficiency_cases import answer_cases
from evals.results import Row
from evals.vector_cache import VectorCache
from weftline.models.language_models.answers import ModelAnswer
from weftline.prompts.efficiency import (
    DOUBT,
    MAX_EMBEDDED_ITEMS,
    MIN_QUOTED_TERMS,
    QUOTED_TERMS,
    ScoredPrompt,
    UseModel,
    answer_parts,
    compare,
    figures,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from evals.calibration_cases import Figures
    from evals.efficiency_cases import AnswerCase
    from weftline.prompts.efficiency import ComparedPart

    Flags = NDArray[np.bool_]

_THRESHOLDS = tuple(np.arange(0.06, 0.8, 0.02))
# A longer run would miss a quoted sentence.
_QUOTED_TERMS = (4, 5)
# The place of a feature.
_SIZE = UseModel._fields.index("size") - 1
_DIGITS = 2


class ComparedCase(NamedTuple):
    """A case with the parts of its prompt compared, an array each: figures and cosines, and which are gold."""

    case: AnswerCase
    figures: Figures
    cosines: Figures
    coverage: Figures
    gold: Flags
    tokens: Figures
    runs: Figures
    lengths: Figures
    contents: Figures

    @property
    def is_development(self) -> bool:
        """Tell whether its conversation, document or claim is in the half that constants are fitted on."""
        return is_development(self.case.group)

    def quoted(self, terms: int) -> Flags:
        """Return which parts are quotations, as ``is_quotation`` does."""
        return (self.runs >= terms) | ((self.lengths == self.runs) & (self.runs >= MIN_QUOTED_TERMS))


class FittedUse(NamedTuple):
    """Both models, the threshold, and the length of a quotation."""

    words: UseModel
    vectors: UseModel | None
    threshold: float
    quoted: int

    def likelihoods(self, case: ComparedCase) -> Figures:
        """Return the likelihood that each part was used, as the product computes it."""
        found = _likelihoods(self.words, case.figures)
        if self.vectors is not None:
            doubtful = doubtful_parts(case, found)
            with_cosines = np.column_stack([case.figures, case.cosines])
            found = np.where(doubtful, _likelihoods(self.vectors, with_cosines), found)
        return found

    def used(self, case: ComparedCase, likelihoods: Figures) -> Flags:
        return (likelihoods >= self.threshold) | case.quoted(self.quoted)


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
    cases = [case for case in compared_cases(answer_cases(folder)) if case.is_development]
    found = fitted(cases)
    for name, model in (("words", found.words), ("vectors", found.vectors)):
        for feature, value in model._asdict().items() if model is not None else ():
            yield Row(f"efficiency_fit.{name}.{feature}", round(value, _DIGITS), "log-odds", None, None, None)
    yield Row("efficiency_fit.threshold", round(found.threshold, _DIGITS), "likelihood", None, None, None)
    yield Row("efficiency_fit.quoted_terms", found.quoted, "terms", None, None, None)


def is_development(group: str) -> bool:
    """Tell by a hash whether a conversation, document or claim is in the half that constants are fitted on."""
    return hashlib.sha256(group.encode()).digest()[0] % 2 == 0


def compared_cases(cases: Sequence[AnswerCase]) -> list[ComparedCase]:
    """Compare every case as the product does; all texts are embedded at once."""
    vectors = VectorCache()
    parts = [compare(ScoredPrompt(case.items, case.task, 0, 0), ModelAnswer(case.answer)) for case in cases]
    said = [answer_parts(case.task, ModelAnswer(case.answer)) for case in cases]
    vectors.of(list({text for texts in said for text in texts} | {each.text for own in parts for each in own}))
    return [_compared(*each, vectors) for each in zip(cases, parts, said, strict=True)]


def _compared(
    case: AnswerCase, parts: Sequence[ComparedPart], said: Sequence[str], vectors: VectorCache
) -> ComparedCase:
    cosines = vectors.of([each.text for each in parts]) @ vectors.of(said).T
    return ComparedCase(
        case=case,
        figures=np.array([figures(each.features)[:-1] for each in parts]),
        cosines=cosines.max(axis=1),
        coverage=np.array([each.features.coverage for each in parts]),
        gold=np.array([case.items[each.place].ref in case.gold for each in parts]),
        tokens=np.array([each.tokens for each in parts]),
        runs=np.array([each.features.run for each in parts]),
        lengths=np.array([each.features.length for each in parts]),
        contents=np.array([each.features.content for each in parts]),
    )


def doubtful_parts(case: ComparedCase, likelihoods: Figures) -> Flags:
    """Return which parts are compared by embeddings, as ``in_doubt`` does."""
    low, high = DOUBT
    places = np.flatnonzero((likelihoods >= low) & (likelihoods < high) & ~case.quoted(QUOTED_TERMS))
    likeliest = dict.fromkeys(case.contents[places[np.argsort(-likelihoods[places], kind="stable")]].tolist())
    return np.isin(case.contents, list(likeliest)[:MAX_EMBEDDED_ITEMS])


def fitted(cases: Sequence[ComparedCase]) -> FittedUse:
    """Fit both models, the threshold and the length of a quotation."""
    every = [np.ones(len(case.gold), bool) for case in cases]
    words = _model(cases, every, has_likeness=False)
    doubtful = [doubtful_parts(case, _likelihoods(words, case.figures)) for case in cases]
    found = FittedUse(words, _model(cases, doubtful, has_likeness=True), 0.0, 0)
    likelihoods = [found.likelihoods(case) for case in cases]
    choices = [
        found._replace(threshold=float(threshold), quoted=quoted)
        for threshold in _THRESHOLDS
        for quoted in _QUOTED_TERMS
    ]

    def f1_of(choice: FittedUse) -> float:
        return mean_f1(cases, [choice.used(case, each) for case, each in zip(cases, likelihoods, strict=True)])

    return max(choices, key=f1_of)


def _likelihoods(model: UseModel, found: Figures) -> Figures:
    return 1 / (1 + np.exp(-model.intercept - found @ np.array(model[1 : 1 + found.shape[1]])))


def _model(cases: Sequence[ComparedCase], chosen: Sequence[Flags], *, has_likeness: bool) -> UseModel:
    features = np.concatenate([case.figures[which] for case, which in zip(cases, chosen, strict=True)])
    if has_likeness:
        cosines = np.concatenate([case.cosines[which] for case, which in zip(cases, chosen, strict=True)])
        features = np.column_stack([features, cosines])
    gold = np.concatenate([case.gold[which] for case, which in zip(cases, chosen, strict=True)])
    names = [case.case.name for case, which in zip(cases, chosen, strict=True) for _ in range(int(which.sum()))]
    return UseModel(*_signed_regression(features, gold.astype(float), _weights(names)))


def _signed_regression(features: Figures, gold: Figures, weight: Figures) -> list[float]:
    """Fit a logistic regression in which more of anything but size never counts against use."""
    columns = list(range(features.shape[1]))
    while True:
        intercept, *found = logistic_regression(features[:, columns], gold, weight)
        worst = min((value, column) for value, column in zip(found, columns, strict=True) if column != _SIZE)
        if worst[0] >= 0:
            coefficients = dict(zip(columns, found, strict=True))
            return [intercept, *(coefficients.get(column, 0.0) for column in range(features.shape[1]))]
        columns.remove(worst[1])


def _weights(names: Sequence[str]) -> Figures:
    """Return weights by which every set counts the same."""
    sizes = dict(zip(*np.unique(names, return_counts=True), strict=True))
    return np.array([1 / sizes[name] for name in names])


def mean_f1(cases: Sequence[ComparedCase], used: Sequence[Flags]) -> float:
    """Return the mean F1 of the sets."""
    by_set: dict[str, list[tuple[Flags, Flags]]] = {}
    for case, found in zip(cases, used, strict=True):
        by_set.setdefault(case.case.name, []).append((found, case.gold))
    return float(np.mean([agreement(pairs).f1 for pairs in by_set.values()]))


def agreement(cases: Sequence[tuple[Flags, Flags]]) -> Agreement:
    """Count how well what counts as used agrees with what is gold, over the parts of all cases."""
    used, gold = (np.concatenate([pair[which] for pair in cases]) for which in (0, 1))
    return Agreement(
        both=int((used & gold).sum()),
        only_used=int((used & ~gold).sum()),
        only_gold=int((~used & gold).sum()),
        neither=int((~used & ~gold).sum()),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
