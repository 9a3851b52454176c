"""Expected use of a prompt without its answer: from the scores of retrieval, and how often items are used otherwise."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from weftline.prompts.efficiency.calibration import SCORES, UNRANKED_USE
from weftline.prompts.efficiency.model import efficiency_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weftline.prompts.efficiency.model import Efficiency, PromptItem


def estimated(items: Iterable[PromptItem], scores: Mapping[str, float], *, sent: int, capacity: int) -> Efficiency:
    """Return the expected efficiency of a prompt; ``scores`` are those of retrieval by ref. One tool is called."""
    scored = [item for item in items if not item.is_required]
    tools = [item.tokens for item in scored if item.kind == "tool"]
    useful = sum(tools) / len(tools) if tools else 0.0
    ranked = 0
    for item in scored:
        score = scores.get(item.ref)
        if item.kind == "tool":
            continue
        if score is None:
            useful += item.tokens * UNRANKED_USE
        else:
            useful += item.tokens * use_by_score(score)
            ranked += item.tokens
    return efficiency_of(
        "retrieval_scores" if ranked else "usual_share",
        sent=sent,
        useful=round(useful),
        overhead=sent - sum(item.tokens for item in scored),
        capacity=capacity,
        ranked=ranked,
    )


def use_by_score(score: float) -> float:
    """Return the expected useful share of a passage with this score."""
    intercept, slope = SCORES
    return 1 / (1 + exp(-intercept - slope * score))
