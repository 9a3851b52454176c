"""Fits the constants of weftline.search.calibration, and judges each set by constants fitted without it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from evals.calibration_fit import logistic_regression
from evals.relevance_cases import OTHERS, relevance_cases
from evals.results import Row
from weftline.search.calibration import EvidenceModel, distances, evidence, log_size, strength_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.relevance_cases import Candidates, RelevanceCase
    from weftline.search.calibration import CollectionEvidence

    Asked = tuple[RelevanceCase, Candidates]

_DIGITS = 2
_MAX_LOG_ODDS = 4.0
_SIMILAR_WEIGHT = 0.5


def relevance_fit(folder: Path | None) -> Iterator[Row]:
    """Yield the fitted constants."""
    if folder is None:
        return
    for name, value in fitted(relevance_cases(folder))._asdict().items():
        yield Row(f"relevance_fit.{name}", round(value, _DIGITS), "log-odds", None, None, None)


def left_out(cases: Sequence[RelevanceCase]) -> list[list[CollectionEvidence]]:
    """Return the evidence of each case by a model that was fitted without its set."""
    models = {name: fitted([case for case in cases if case.name != name]) for name in OTHERS}
    return [
        [evidence(each.features, each.totals, each.size, case.terms, models[case.name]) for each in case.collections]
        for case in cases
    ]


def fitted(cases: Sequence[RelevanceCase]) -> EvidenceModel:
    asked = [(case, each) for case in cases for each in case.collections]
    weights = _weights(asked)
    features = np.array([[strength_of(each.features, case.terms), log_size(each.size)] for case, each in asked])
    first = logistic_regression(features, np.array([float(each.own) for _, each in asked]), weights)
    log_odds = np.clip(first[0] + features @ np.array(first[1:]), -_MAX_LOG_ODDS, _MAX_LOG_ODDS)
    rows = [
        np.column_stack([np.full(len(each.totals), known), *distances(each.totals)])
        for known, (_, each) in zip(log_odds, asked, strict=True)
    ]
    gold = np.concatenate([each.gold for _, each in asked]).astype(np.float64)
    by_row = np.concatenate([np.full(len(each.totals), w) for w, (_, each) in zip(weights, asked, strict=True)])
    return EvidenceModel(*first, *logistic_regression(np.concatenate(rows), gold, by_row))


def _weights(asked: Sequence[Asked]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return weights by which every set counts the same, and so does every kind of question; similar content half."""
    keys = [(case.name, case.kind, each.own) for case, each in asked]
    sizes = Counter(keys)
    return np.array([(_SIMILAR_WEIGHT if key[1] == "similar" else 1.0) / sizes[key] for key in keys])
