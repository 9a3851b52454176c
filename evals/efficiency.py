"""Agreement of measured use with gold evidence: which items of a prompt does its answer use, and how many tokens.

``own`` rows are measured with the constants of the product, which were fitted on the same sets. ``held_out`` rows are
measured on the half of the conversations, documents and claims that a fit has not seen, ``left_out`` rows on each set
with a fit that has seen none of it. The evidence of a set is what its annotators listed; other items may support an
answer as well, so no method can agree with all of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from evals.calibration import auroc
from evals.efficiency_cases import answer_cases
from evals.efficiency_fit import FittedUse, agreement, compared_cases, fitted
from evals.results import Row
from weft.capabilities.efficiency.calibration import USED_LIKELIHOOD, VECTORS, WORDS
from weft.capabilities.efficiency.estimate import estimated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.efficiency_fit import ComparedCase

    Scored = list[tuple[ComparedCase, Sequence[float]]]

_DIGITS = 3
_MIN_AUROC, _MIN_F1 = 0.85, 0.5
_PRODUCT = FittedUse(WORDS, VECTORS, USED_LIKELIHOOD)
_WORDS_ONLY = FittedUse(WORDS, WORDS, USED_LIKELIHOOD)


def efficiency(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    cases = compared_cases(asyncio.run(answer_cases(folder)))
    names = list(dict.fromkeys(case.case.name for case in cases))
    seen, unseen = ([case for case in cases if _is_seen(case) is wanted] for wanted in (True, False))
    half = fitted(seen)
    for name in names:
        own, others = ([case for case in cases if (case.case.name == name) is wanted] for wanted in (True, False))
        yield from _rows(f"{name}.own", _scored(own, _PRODUCT), _PRODUCT.threshold)
        held = [case for case in unseen if case.case.name == name]
        yield from _rows(f"{name}.held_out", _scored(held, half), half.threshold)
        left = fitted(others)
        yield from _rows(f"{name}.left_out", _scored(own, left), left.threshold)
        yield from _tokens(name, own)
    yield from _means(cases, unseen, half, names)


def _is_seen(case: ComparedCase) -> bool:
    return hashlib.sha256(case.case.group.encode()).digest()[0] % 2 == 0


def _scored(cases: Sequence[ComparedCase], model: FittedUse) -> Scored:
    return [(case, model.likelihoods(case)) for case in cases]


def _rows(name: str, scored: Scored, threshold: float) -> Iterator[Row]:
    found = agreement(scored, threshold)
    figures = {"auroc": _auroc(scored), "precision": found.precision, "recall": found.recall, "f1": found.f1}
    for figure, value in figures.items():
        yield Row(f"efficiency.{name}.{figure}", round(value, _DIGITS), f"{len(scored)} answers", None, None, None)


def _auroc(scored: Scored) -> float:
    """Return the mean over answers of the share of pairs in which the gold item is the likelier one."""
    values = []
    for case, found in scored:
        likelihoods, gold = np.array(found), np.array(case.gold)
        right, wrong = likelihoods[gold], likelihoods[~gold]
        if len(right) and len(wrong):
            values.append(auroc(right, np.ones(len(right)), wrong, np.ones(len(wrong))))
    return fmean(values) if values else 0.0


def _tokens(name: str, cases: Sequence[ComparedCase]) -> Iterator[Row]:
    """Yield the share of tokens that are gold, and as measured by the answer and estimated without it."""
    gold, measured, expected = [], [], []
    for case in cases:
        total = sum(each.item.tokens for each in case.compared) or 1
        sizes = [each.item.tokens for each in case.compared]
        gold.append(sum(size for size, is_gold in zip(sizes, case.gold, strict=True) if is_gold) / total)
        used = [likelihood >= USED_LIKELIHOOD for likelihood in _PRODUCT.likelihoods(case)]
        measured.append(sum(size for size, is_used in zip(sizes, used, strict=True) if is_used) / total)
        found = estimated((each.item for each in case.compared), case.case.scores, sent=total, capacity=total)
        expected.append(found.useful_tokens / total)
    for basis, values in (("measured", measured), ("estimated", expected)):
        yield _row(f"{name}.share_{basis}", fmean(values), "of tokens; baseline: gold", fmean(gold))
        error = fmean(abs(one - other) for one, other in zip(values, gold, strict=True))
        yield _row(f"{name}.share_{basis}_off_by", error, "mean of answers", None)


def _means(
    cases: Sequence[ComparedCase], unseen: Sequence[ComparedCase], half: FittedUse, names: Sequence[str]
) -> Iterator[Row]:
    """Yield the means over the sets, and what words alone achieve."""
    for label, model, of in (
        ("own", _PRODUCT, cases),
        ("words_only", _WORDS_ONLY, cases),
        ("held_out", half, unseen),
    ):
        by_set = [_scored([case for case in of if case.case.name == name], model) for name in names]
        f1 = fmean(agreement(scored, model.threshold).f1 for scored in by_set)
        area = fmean(map(_auroc, by_set))
        is_target = label == "held_out"
        yield _row(f"mean.{label}.auroc", area, "of sets", None, _MIN_AUROC if is_target else None)
        yield _row(f"mean.{label}.f1", f1, "of sets", None, _MIN_F1 if is_target else None)


def _row(name: str, value: float, unit: str, baseline: float | None, needed: float | None = None) -> Row:
    value, baseline = round(value, _DIGITS), None if baseline is None else round(baseline, _DIGITS)
    target = None if needed is None else f">= {needed}"
    return Row(f"efficiency.{name}", value, unit, baseline, target, None if needed is None else value >= needed)
