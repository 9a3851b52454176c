"""Fits the constants of weftline.search.calibration on the evaluation sets.

Logistic regression with L2 regularisation over standardised features. The figures that are published come from models
that were fitted without the set, or without the conversation, that they are measured on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evals.calibration_cases import calibration_cases, weights
from evals.results import Row
from evals.retrieval_runs import runs_over
from weftline.search.calibration import (
    MIN_SPEAKER_GAP,
    CalibrationModel,
    Coefficients,
    SpeakerModel,
    calibrate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from evals.calibration_cases import Case, Figures
    from weftline.search.calibration import Calibration

# One question in four has no answer.
UNANSWERABLE_WEIGHT = 1 / 3
_REGULARISATION, _ITERATIONS = 3.0, 25
_FEATURES = Coefficients._fields[1:]
_DIGITS = 2


def calibration_fit(folder: Path | None) -> Iterator[Row]:
    """Yield the fitted constants."""
    if folder is None:
        return
    cases = calibration_cases(runs_over(folder))
    for name, coefficients in fitted_model(cases, cases)._asdict().items():
        for feature, value in coefficients._asdict().items():
            yield Row(f"calibration_fit.{name}.{feature}", round(value, _DIGITS), "log-odds", None, None, None)


def left_out(cases: Sequence[Case]) -> list[Calibration]:
    """Return the calibration of each case by a model that was fitted without its set.

    Only LoCoMo names speakers, so the speaker model is fitted without the case's conversation instead.
    """
    models: dict[tuple[str, str | None], CalibrationModel] = {}
    found = []
    for case in cases:
        conversation = case.answer.question.corpus if _gap(case) is not None else None
        key = case.name, conversation
        if key not in models:
            models[key] = fitted_model(
                [each for each in cases if each.name != case.name],
                [each for each in cases if each.answer.question.corpus != conversation],
            )
        found.append(calibrate(case.answer.features, models[key]))
    return found


def fitted_model(cases: Sequence[Case], conversations: Sequence[Case]) -> CalibrationModel:
    """Fit a model; ``conversations`` have the cases that name a speaker."""
    return CalibrationModel(
        found=_coefficients(cases, lambda case: any(case.relevant)),
        first=_coefficients(cases, lambda case: case.relevant[0]),
        speaker=_speaker(conversations),
    )


def _coefficients(cases: Sequence[Case], target: Callable[[Case], bool]) -> Coefficients:
    counted = [case for case in cases if case.kind != "similar"]
    features = np.array([[getattr(case.answer.features, name) for name in _FEATURES] for case in counted])
    targets = np.array([float(target(case)) for case in counted])
    return Coefficients(*logistic_regression(features, targets, weights(counted, UNANSWERABLE_WEIGHT)))


def _speaker(cases: Sequence[Case]) -> SpeakerModel:
    """Fit whether a question that names a speaker is about that speaker."""
    kinds = ("answerable", "adversarial")
    named = [case for case in cases if case.kind in kinds and _gap(case) is not None]
    features = np.array([[max(_gap(case) or 0.0, MIN_SPEAKER_GAP)] for case in named])
    targets = np.array([float(case.is_answerable) for case in named])
    return SpeakerModel(*logistic_regression(features, targets, weights(named, UNANSWERABLE_WEIGHT)))


def _gap(case: Case) -> float | None:
    return None if case.answer.features is None else case.answer.features.speaker_gap


def logistic_regression(features: Figures, targets: Figures, weight: Figures) -> list[float]:
    """Return intercept and coefficients, by Newton's method."""
    weight = weight / weight.mean()
    mean, scale = np.average(features, axis=0, weights=weight), features.std(axis=0)
    design = np.column_stack([np.ones(len(features)), (features - mean) / scale])
    penalty = np.diag([0.0] + [_REGULARISATION] * len(scale))
    solution = np.zeros(design.shape[1])
    for _ in range(_ITERATIONS):
        predicted = 1 / (1 + np.exp(-design @ solution))
        gradient = design.T @ (weight * (predicted - targets)) + penalty @ solution
        curvature = (design * (weight * predicted * (1 - predicted))[:, None]).T @ design + penalty
        solution -= np.linalg.solve(curvature, gradient)
    coefficients = solution[1:] / scale
    return [float(solution[0] - coefficients @ mean), *coefficients.tolist()]
