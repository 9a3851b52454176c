"""Efficiency of a prompt: the tokens that the answer used, those that every prompt needs, and the evidence per item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from weftline.models.language_models.model import BlockKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ItemKind = BlockKind | Literal["tool"]
# What the figures are from: the answer of the model or, as an estimate without one, the scores of retrieval; where
# nothing in the prompt has one, how much of prompts is used usually.
EfficiencyBasis = Literal["answer", "retrieval_scores", "usual_share"]
# How an answer used an item: required items are in every prompt, used or not; repeated ones say what an earlier item
# that was used says already.
Use = Literal["required", "quoted", "cited", "paraphrased", "called", "repeated", "unused"]
USED: frozenset[Use] = frozenset({"quoted", "cited", "paraphrased", "called"})
_DIGITS = 4


class PromptItem(NamedTuple):
    """An item of a prompt with its text: a passage, an event, a board entry, a tool. Its ref is that in the receipt.

    ``name`` is what an answer may cite it by. ``is_required``: it has to be in the prompt whatever the answer is.
    """

    ref: str
    kind: ItemKind
    tokens: int
    text: str = ""
    name: str = ""
    is_required: bool = False


class ScoredPrompt(NamedTuple):
    """A prompt to compare with its answer: its items, its task, the tokens sent and those that the window can hold."""

    items: Sequence[PromptItem]
    task: str
    sent_tokens: int
    capacity_tokens: int


class ItemUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the answer used an item of the prompt.

    ``useful_tokens``: those of its parts that were used; an item that is not long has one part. ``likelihood``: that it
    was used, where texts had to be compared, of the likeliest part.
    """

    ref: str
    kind: ItemKind
    tokens: int
    use: Use
    useful_tokens: int = 0
    likelihood: float | None = None


class Efficiency(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a prompt was used. ``score`` is useful over sent tokens, both without the overhead.

    ``overhead_tokens``: what every prompt needs, used or not: layers, system messages and the task.
    ``capacity_tokens``: what the window can hold, and ``window_fill`` how much of that was sent. Without an answer
    (``basis`` retrieval_scores or usual_share) the useful tokens are an estimate, and there are no ``items``;
    ``ranked_tokens`` are those whose score of retrieval it is from.
    """

    basis: EfficiencyBasis
    score: float | None
    window_fill: float
    sent_tokens: int
    useful_tokens: int
    overhead_tokens: int
    capacity_tokens: int
    ranked_tokens: int = 0
    items: tuple[ItemUse, ...] = ()

    @property
    def is_estimate(self) -> bool:
        return self.basis != "answer"


def efficiency_of(
    basis: EfficiencyBasis,
    *,
    sent: int,
    useful: int,
    overhead: int,
    capacity: int,
    ranked: int = 0,
    items: Sequence[ItemUse] = (),
) -> Efficiency:
    """Return the efficiency of a prompt with its ratios; without anything besides the overhead it has no score."""
    return Efficiency(
        basis=basis,
        score=round(min(1.0, useful / (sent - overhead)), _DIGITS) if sent > overhead else None,
        window_fill=round(sent / capacity, _DIGITS) if capacity else 1.0,
        sent_tokens=sent,
        useful_tokens=useful,
        overhead_tokens=overhead,
        capacity_tokens=capacity,
        ranked_tokens=ranked,
        items=tuple(items),
    )


def useful_tokens(items: Iterable[ItemUse]) -> int:
    return sum(item.useful_tokens for item in items)
