"""Fitting of the calibration, and the figures that it is judged by."""

from __future__ import annotations

import numpy as np
import pytest
from evals.calibration import auroc
from evals.calibration_fit import logistic_regression

pytestmark = pytest.mark.req("WX-06")


def test_auroc_is_the_share_of_ordered_pairs() -> None:
    right, wrong = np.array([0.9, 0.5, 0.2]), np.array([0.5, 0.1])
    pairs = [(a > b) + (a == b) / 2 for a in right for b in wrong]
    assert auroc(right, np.ones(3), wrong, np.ones(2)) == pytest.approx(np.mean(pairs))


def test_auroc_counts_weights_as_repetitions() -> None:
    right, wrong = np.array([0.9, 0.3]), np.array([0.6, 0.1])
    weighted = auroc(right, np.array([3.0, 1.0]), wrong, np.array([1.0, 2.0]))
    repeated = auroc(np.repeat(right, [3, 1]), np.ones(4), np.repeat(wrong, [1, 2]), np.ones(3))
    assert weighted == pytest.approx(repeated)


def test_logistic_regression_finds_the_coefficients_of_its_data() -> None:
    random = np.random.default_rng(1)
    features = random.normal(size=(20_000, 2)) * [1.0, 0.1]
    probability = 1 / (1 + np.exp(-(0.5 + 2.0 * features[:, 0] - 10.0 * features[:, 1])))
    targets = (random.random(len(features)) < probability).astype(float)
    assert logistic_regression(features, targets, np.ones(len(features))) == pytest.approx([0.5, 2.0, -10.0], rel=0.15)


def test_weights_of_cases_shift_the_intercept() -> None:
    features, targets = np.linspace(-1, 1, 200)[:, None], (np.arange(200) % 3 == 0).astype(float)
    plain = logistic_regression(features, targets, np.ones(200))[0]
    more_weight = logistic_regression(features, targets, np.where(targets > 0, 4.0, 1.0))[0]
    assert more_weight - plain == pytest.approx(np.log(4), abs=0.05)
