"""Calibration of score and confidence, for all sources.

Confidence must tell questions that have an answer from those that have none, scores must tell right results from wrong
ones. ``left_out`` rows are measured with models that were fitted without the set they are measured on.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from evals.calibration_cases import calibration_cases, weights
from evals.calibration_fit import UNANSWERABLE_WEIGHT, left_out
from evals.results import Row
from evals.retrieval_runs import BEST, runs_over
from weftline.search.calibration import RELIABLE_SCORE, calibrate
from weftline.search.model import CONFIDENT, DEFAULT_MIN_SCORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.calibration_cases import Case, Figures, Kind
    from weftline.search.calibration import Calibration

_BINS = 10
_DIGITS = 3
_MIN_AUROC, _MIN_PRECISION, _MAX_LOST, _MAX_ERROR = 0.9, 0.9, 0.01, 0.1


def calibration(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    cases = calibration_cases(runs_over(folder))
    own, others = [calibrate(case.answer.features) for case in cases], left_out(cases)
    yield from _auroc(cases, own, others)
    yield from _confidence(cases, own)
    yield from _scores(cases, own, others)


def _auroc(cases: Sequence[Case], own: Sequence[Calibration], others: Sequence[Calibration]) -> Iterator[Row]:
    """Yield how well confidence tells questions with an answer from those without; sets count equally."""
    weight = weights(cases, 1.0)
    for name, calibrations in (("auroc", own), ("auroc_left_out", others)):
        confidence = np.array([each.confidence for each in calibrations])
        has_answer = np.array([case.is_answerable for case in cases])
        value = auroc(confidence[has_answer], weight[has_answer], confidence[~has_answer], weight[~has_answer])
        yield _row(f"confidence.{name}", value, "of confidence", f">= {_MIN_AUROC}", met=value >= _MIN_AUROC)
    kinds: tuple[Kind, ...] = ("elsewhere", "adversarial", "similar")
    for kind in kinds:
        names = sorted({case.name for case in cases if case.kind == kind})
        value = fmean(_auroc_of(cases, others, name, kind) for name in names)
        yield Row(f"calibration.confidence.auroc_left_out.{kind}", round(value, _DIGITS), "by set", None, None, None)


def _auroc_of(cases: Sequence[Case], calibrations: Sequence[Calibration], name: str, kind: Kind) -> float:
    """Return the AUROC of one set, for one kind of questions without an answer."""
    known = [(case.kind, each.confidence) for case, each in zip(cases, calibrations, strict=True) if case.name == name]
    right, wrong = (np.array([value for of, value in known if of == wanted]) for wanted in ("answerable", kind))
    return auroc(right, np.ones(len(right)), wrong, np.ones(len(wrong)))


def auroc(right: Figures, right_weight: Figures, wrong: Figures, wrong_weight: Figures) -> float:
    """Return the weighted share of pairs in which the right one has the higher value; equal ones count half."""
    order = np.argsort(wrong)
    below = np.concatenate([[0.0], np.cumsum(wrong_weight[order])])
    lower, not_higher = (below[np.searchsorted(wrong[order], right, side)] for side in ("left", "right"))
    pairs = right_weight.sum() * wrong_weight.sum()
    return float((right_weight * (lower + not_higher)).sum() / 2 / pairs)


def _confidence(cases: Sequence[Case], calibrations: Sequence[Calibration]) -> Iterator[Row]:
    predicted = np.array([each.confidence for each in calibrations])
    found = np.array([float(any(case.relevant)) for case in cases])
    error = _calibration_error(predicted, found, weights(cases, UNANSWERABLE_WEIGHT))
    yield _row("confidence.off_by", error, "mean of ten bins", f"<= {_MAX_ERROR}", met=error <= _MAX_ERROR)
    weight, has_answer = weights(cases, 1.0), np.array([case.is_answerable for case in cases])
    doubted, wrongly = (
        round(float(np.average(predicted[which] < CONFIDENT, weights=weight[which])), _DIGITS)
        for which in (~has_answer, has_answer)
    )
    yield Row("calibration.doubted_without_answer", doubted, "baseline: with answer", wrongly, None, None)


def _calibration_error(predicted: Figures, true: Figures, weight: Figures) -> float:
    """Return the expected calibration error over ten bins of predicted confidence, weighted."""
    step = np.minimum((predicted * _BINS).astype(int), _BINS - 1)
    totals, predictions, trues = (
        np.bincount(step, each, _BINS) for each in (weight, weight * predicted, weight * true)
    )
    return float(np.abs(predictions - trues).sum() / totals.sum())


def _scores(cases: Sequence[Case], own: Sequence[Calibration], others: Sequence[Calibration]) -> Iterator[Row]:
    """Yield the share of relevant results below 0.7, and the share that is relevant of results from 0.9 on."""
    lost, _, _ = _score_figures(cases, own)
    yield _row("score.lost_below_0.7", lost, "of relevant results", f"<= {_MAX_LOST}", met=lost <= _MAX_LOST)
    for name, calibrations in (("right_from_0.9", own), ("right_from_0.9_left_out", others)):
        _, right, reached = _score_figures(cases, calibrations)
        yield _row(
            f"score.{name}", right, "half without an answer", f">= {_MIN_PRECISION}", met=right >= _MIN_PRECISION
        )
        yield Row(f"calibration.score.{name}.reached", round(reached, _DIGITS), "of questions", None, None, None)


def _score_figures(cases: Sequence[Case], calibrations: Sequence[Calibration]) -> tuple[float, float, float]:
    """Return the share of relevant results that are lost, the precision of reliable scores, and how many reach them."""
    scores, relevant, weight, answerable = [], [], [], []
    for case, calibrated, each in zip(cases, calibrations, weights(cases, 1.0), strict=True):
        best = np.sort(case.answer.total)[::-1][:BEST]
        scores += calibrated.scores(best).tolist()
        relevant += case.relevant
        weight += [each] * len(best)
        answerable += [case.is_answerable] * len(best)
    values, right, by_weight = np.array(scores), np.array(relevant), np.array(weight)
    reliable = values >= RELIABLE_SCORE
    lost = float(np.average(values[right] < DEFAULT_MIN_SCORE, weights=by_weight[right]))
    precision = float(np.average(right[reliable], weights=by_weight[reliable]))
    sets = len({case.name for case in cases})
    return lost, precision, float(by_weight[reliable & np.array(answerable)].sum()) / sets


def _row(name: str, value: float, unit: str, target: str, *, met: bool) -> Row:
    return Row(f"calibration.{name}", round(value, _DIGITS), unit, None, target, met)
