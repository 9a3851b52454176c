"""Scores of prompts: small ones with their evidence against those that contain everything, for the alert's threshold.

The small ones are made from the data, not assembled by Weft.

An alert looks at the useful share of an agent's last calls together, so prompts about one conversation or document are
also added up in windows of that many calls.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evals.results import Row
from evals.vector_cache import VectorCache
from weft.capabilities.agent_context.alert_settings import DEFAULT_CALLS, DEFAULT_EFFICIENCY
from weft.capabilities.efficiency.model import ScoredPrompt, useful_tokens
from weft.capabilities.efficiency.scoring import answer_parts, compare, in_doubt, item_uses, with_likeness
from weft.capabilities.language_models.answers import ModelAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evals.efficiency_cases import AnswerCase
    from weft.capabilities.efficiency.model import PromptItem

_DIGITS = 3
_QUANTILES = (0.05, 0.5, 0.95)
_MAX_FALSE, _MIN_FOUND = 0.05, 0.8


class CallTokens(NamedTuple):
    """Useful and sent tokens of a call."""

    useful: int
    sent: int


def score_rows(cases: Sequence[AnswerCase]) -> Iterator[Row]:
    """Yield quantiles of the scores, and how many windows of calls the default threshold calls inefficient."""
    vectors = VectorCache()
    compared = [case for case in cases if case.naive]
    calls = {
        "small": [_call(case, case.items, vectors) for case in compared],
        "naive": [_call(case, case.naive, vectors) for case in compared],
    }
    windows = {kind: list(_windows(compared, found)) for kind, found in calls.items()}
    for kind, found in calls.items():
        yield from _quantiles(f"{kind}.call", [call.useful / call.sent for call in found])
        yield from _quantiles(f"{kind}.window", windows[kind])
        for name in dict.fromkeys(case.name for case in compared):
            own = [call for case, call in zip(compared, found, strict=True) if case.name == name]
            share = sum(call.useful for call in own) / sum(call.sent for call in own)
            yield Row(f"efficiency.scores.{kind}.{name}", round(share, _DIGITS), "of tokens", None, None, None)
    low = {kind: float(np.mean(np.array(found) < DEFAULT_EFFICIENCY)) for kind, found in windows.items()}
    yield _judged("small", low["small"], f"<= {_MAX_FALSE}", met=low["small"] <= _MAX_FALSE)
    yield _judged("naive", low["naive"], f">= {_MIN_FOUND}", met=low["naive"] >= _MIN_FOUND)


def _call(case: AnswerCase, items: Sequence[PromptItem], vectors: VectorCache) -> CallTokens:
    """Score a prompt as the product does."""
    prompt, answer = ScoredPrompt(items, case.task, 0, 0), ModelAnswer(case.answer)
    compared = compare(prompt, answer)
    doubtful = in_doubt(compared)
    likeness: dict[int, float] = {}
    if doubtful:
        said = vectors.of(answer_parts(case.task, answer))
        cosines = (vectors.of([each.text for each in doubtful]) @ said.T).max(axis=1)
        likeness = {each.features.content: float(found) for each, found in zip(doubtful, cosines, strict=True)}
    uses = item_uses(prompt, answer, with_likeness(compared, likeness))
    return CallTokens(useful_tokens(uses), sum(item.tokens for item in items))


def _windows(cases: Sequence[AnswerCase], calls: Sequence[CallTokens]) -> Iterator[float]:
    """Yield the useful share of each run of calls about one source, as many as an alert looks at."""
    pairs = sorted(zip(cases, calls, strict=True), key=lambda pair: (pair[0].name, pair[0].group))
    for _, group in groupby(pairs, key=lambda pair: (pair[0].name, pair[0].group)):
        own = [call for _, call in group]
        for start in range(len(own) - DEFAULT_CALLS + 1):
            window = own[start : start + DEFAULT_CALLS]
            yield sum(call.useful for call in window) / sum(call.sent for call in window)


def _quantiles(name: str, values: Sequence[float]) -> Iterator[Row]:
    for quantile, value in zip(_QUANTILES, np.quantile(values, _QUANTILES).tolist(), strict=True):
        unit = f"of tokens, {len(values)} of them"
        yield Row(f"efficiency.scores.{name}.p{quantile * 100:02.0f}", round(value, _DIGITS), unit, None, None, None)


def _judged(kind: str, share: float, target: str, *, met: bool) -> Row:
    unit = f"of windows below {DEFAULT_EFFICIENCY}"
    return Row(f"efficiency.alert.{kind}_low", round(share, _DIGITS), unit, None, target, met)
