"""Agreement of measured use with gold evidence: which items of a prompt does its answer use, and how many tokens.

All constants were fitted on the development half (``efficiency_fit``); ``held_out`` rows are measured on the other half
of the conversations, documents and claims. Features were chosen with these rows in view, so they are no blind test.
``left_out`` is the mean over sets of what constants achieve that were fitted without the set. Baselines on the held-out
half, each with the best threshold of the development half: everything is useful, term overlap only, embeddings only.
The evidence of a set is what its annotators listed; other items may support an answer as well, so no method can agree
with all of it.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from evals.calibration import auroc
from evals.efficiency_cases import answer_cases
from evals.efficiency_fit import FittedUse, agreement, compared_cases, fitted, mean_f1
from evals.results import Row
from weftline.prompts.efficiency import QUOTED_TERMS, USED_LIKELIHOOD, VECTORS, WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from evals.calibration_cases import Figures
    from evals.efficiency_fit import ComparedCase, Flags

    # Which parts a method calls used, and by which figures.
    Judged = tuple[Flags, Figures]

_DIGITS = 3
# Set before anything was measured.
_MIN_AUROC, _MIN_F1, _MIN_KAPPA = 0.85, 0.5, 0.4
_PRODUCT = FittedUse(WORDS, VECTORS, USED_LIKELIHOOD, QUOTED_TERMS)
_WORDS_ONLY = _PRODUCT._replace(vectors=None)
_GRID = tuple(np.arange(0.02, 1.0, 0.02))
_HALVES = ("development", "held_out")


def efficiency(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    cases = compared_cases(answer_cases(folder))
    names = list(dict.fromkeys(case.case.name for case in cases))
    halves = {half: [case for case in cases if case.is_development is (half == "development")] for half in _HALVES}
    methods = _methods(halves["development"])
    for name in names:
        for half in _HALVES:
            yield from _agreement(f"{name}.{half}", [case for case in halves[half] if case.case.name == name], _use)
        held = [case for case in halves["held_out"] if case.case.name == name]
        for method, judge in methods.items():
            yield from _agreement(f"{name}.{method}", held, judge, ("f1", "kappa", "auroc"))
        yield from _shares(name, held)
    yield from _means(halves, methods, names)


def _use(case: ComparedCase, model: FittedUse = _PRODUCT) -> Judged:
    """Return which parts the product calls used, and their likelihoods."""
    found = model.likelihoods(case)
    return model.used(case, found), found


def _methods(development: Sequence[ComparedCase]) -> dict[str, Callable[[ComparedCase], Judged]]:
    """Return the baselines, with thresholds from the development half."""

    def best(values: Sequence[Figures]) -> float:
        return max(_GRID, key=lambda least: mean_f1(development, [found >= least for found in values]))

    overlap = best([case.coverage for case in development])
    cosine = best([case.cosines for case in development])
    return {
        "everything": lambda case: (np.ones(len(case.gold), bool), np.ones(len(case.gold))),
        "terms_only": lambda case: (case.coverage >= overlap, case.coverage),
        "embeddings_only": lambda case: (case.cosines >= cosine, case.cosines),
        "without_vectors": lambda case: _use(case, _WORDS_ONLY),
    }


def _agreement(
    name: str,
    cases: Sequence[ComparedCase],
    judge: Callable[[ComparedCase], Judged],
    figures: Sequence[str] = ("precision", "recall", "f1", "kappa", "auroc"),
) -> Iterator[Row]:
    for figure, value in _measured(cases, judge).items():
        if figure in figures:
            yield _row(f"{name}.{figure}", value, f"{len(cases)} answers")


def _measured(cases: Sequence[ComparedCase], judge: Callable[[ComparedCase], Judged]) -> dict[str, float]:
    judged = [judge(case) for case in cases]
    found = agreement([(used, case.gold) for case, (used, _) in zip(cases, judged, strict=True)])
    area = _auroc([(values, case.gold) for case, (_, values) in zip(cases, judged, strict=True)])
    return {
        "precision": found.precision,
        "recall": found.recall,
        "f1": found.f1,
        "kappa": found.kappa,
        "auroc": area,
    }


def _auroc(judged: Sequence[tuple[Figures, Flags]]) -> float:
    """Return the mean over answers of the share of pairs in which the gold part has the higher figure."""
    areas = []
    for values, gold in judged:
        right, wrong = values[gold], values[~gold]
        if len(right) and len(wrong):
            areas.append(auroc(right, np.ones(len(right)), wrong, np.ones(len(wrong))))
    return fmean(areas) if areas else 0.0


def _shares(name: str, cases: Sequence[ComparedCase]) -> Iterator[Row]:
    """Yield the share of tokens that are gold, and as measured by the answer."""
    gold = [float(case.tokens[case.gold].sum() / case.tokens.sum()) for case in cases]
    measured = [float(case.tokens[_use(case)[0]].sum() / case.tokens.sum()) for case in cases]
    yield _row(f"{name}.share", fmean(measured), "of tokens; baseline: gold", baseline=fmean(gold))
    error = fmean(abs(one - other) for one, other in zip(measured, gold, strict=True))
    yield _row(f"{name}.share_off_by", error, "mean of answers")


def _means(
    halves: dict[str, list[ComparedCase]],
    methods: dict[str, Callable[[ComparedCase], Judged]],
    names: Sequence[str],
) -> Iterator[Row]:
    """Yield the means over the sets, with the best baseline."""
    means: dict[str, dict[str, float]] = {}
    for method, judge in {"development": _use, "held_out": _use, **methods}.items():
        of = halves["development" if method == "development" else "held_out"]
        means[method] = _mean([_measured([case for case in of if case.case.name == name], judge) for name in names])
    means["left_out"] = _mean([_left_out(halves, name) for name in names])
    needed = {"f1": _MIN_F1, "kappa": _MIN_KAPPA, "auroc": _MIN_AUROC}
    for method, values in means.items():
        for figure, value in values.items():
            is_target = method == "held_out" and figure in needed
            best = max(means[each][figure] for each in ("everything", "terms_only", "embeddings_only"))
            yield _row(
                f"mean.{method}.{figure}",
                value,
                "of sets; baseline: the best of three" if is_target else "of sets",
                baseline=best if is_target else None,
                needed=needed[figure] if is_target else None,
            )


def _left_out(halves: dict[str, list[ComparedCase]], name: str) -> dict[str, float]:
    """Return what constants achieve on the held-out half of a set that were fitted on the other sets."""
    model = fitted([case for case in halves["development"] if case.case.name != name])
    held = [case for case in halves["held_out"] if case.case.name == name]
    return _measured(held, lambda case: _use(case, model))


def _mean(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {figure: fmean(each[figure] for each in found) for figure in found[0]}


def _row(name: str, value: float, unit: str, *, baseline: float | None = None, needed: float | None = None) -> Row:
    value, baseline = round(value, _DIGITS), None if baseline is None else round(baseline, _DIGITS)
    target = None if needed is None else f">= {needed}"
    return Row(f"efficiency.{name}", value, unit, baseline, target, None if needed is None else value >= needed)
