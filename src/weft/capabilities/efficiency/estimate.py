"""Expected use of a prompt without its answer: from the scores of retrieval, and how often items of a kind are used."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from weft.capabilities.efficiency.model import efficiency_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.capabilities.efficiency.model import Efficiency, PromptItem

# Log-odds that a passage is used, by its score; and the share of used tokens by kind, where there is no score.
_INTERCEPT, _SLOPE = -4.0, 5.0
_RATES: dict[str, float] = {
    "pins": 0.2,
    "summary": 0.2,
    "conversation": 0.1,
    "retrieved": 0.05,
    "board": 0.2,
    "missing": 0.05,
}


def estimated(items: Iterable[PromptItem], scores: Mapping[str, float], *, sent: int, capacity: int) -> Efficiency:
    """Return the expected efficiency of a prompt; ``scores`` are those of retrieval by ref. One tool is called."""
    found = list(items)
    scored = [item for item in found if not item.is_required]
    tools = [item.tokens for item in scored if item.kind == "tool"]
    useful = sum(tools) / len(tools) if tools else 0.0
    useful += sum(item.tokens * _likelihood(item, scores) for item in scored if item.kind != "tool")
    overhead = sent - sum(item.tokens for item in scored)
    return efficiency_of("retrieval_scores", sent=sent, useful=round(useful), overhead=overhead, capacity=capacity)


def _likelihood(item: PromptItem, scores: Mapping[str, float]) -> float:
    score = scores.get(item.ref)
    if score is None:
        return _RATES[item.kind]
    return 1 / (1 + exp(-_INTERCEPT - _SLOPE * score))
