"""Reduce a conversation to a number of tokens: choose the words of most value per token, and write them as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.capabilities.compaction.reduction.bindings import Bindings, find_bindings
from weft.capabilities.compaction.reduction.lines import Speakers, label_speakers, render
from weft.capabilities.compaction.reduction.model import ReducedText, Utterance
from weft.capabilities.compaction.reduction.units import Units, split
from weft.capabilities.compaction.reduction.values import unit_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.kernel.tokens import TokenCounter

    Array = np.ndarray[Any, Any]

__all__ = ["ReducedText", "Utterance", "reduce_texts"]

_PROTECTED_VALUE = 1000.0
_LEAST_COST = 0.25
# Renderings that are counted to meet the target.
_ATTEMPTS = 6
# Part of the target that may remain unused.
_TOLERANCE = 0.004


class _Selection(NamedTuple):
    units: Units
    values: Array
    density: Array
    order: Array
    rank: Array
    bindings: Bindings
    speakers: Speakers


def reduce_texts(
    texts: Sequence[Utterance], target_tokens: int, protected: Sequence[str], count: TokenCounter
) -> ReducedText:
    """Return the texts in at most ``target_tokens``; ``protected`` strings stay as they are while they fit."""
    units = split(texts, count)
    if not len(units.form):
        return ReducedText("", 0, list(range(len(texts))), 0, 0, list(protected))
    share = target_tokens / max(float(units.cost.sum()), 1.0)
    values = unit_values(units, share)
    for span in _protected_spans(texts, units, protected):
        values[span] = np.maximum(values[span], _PROTECTED_VALUE)
    density = values / np.maximum(units.cost, _LEAST_COST)
    order = np.argsort(-density, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    speakers = label_speakers(texts, count)
    selection = _Selection(units, values, density, order, rank, find_bindings(units), speakers)
    kept, text, tokens = _fit(selection, target_tokens, count)
    said = set(units.utterance[kept].tolist())
    return ReducedText(
        text,
        tokens,
        [number for number in range(len(texts)) if number not in said],
        len(kept),
        int(kept.sum()),
        [literal for literal in protected if literal not in text],
    )


def _protected_spans(texts: Sequence[Utterance], units: Units, protected: Sequence[str]) -> list[slice]:
    """Return the units of the first occurrence of each protected string."""
    if not protected:
        return []
    joined = "\n".join(utterance.text for utterance in texts)
    spans = []
    for literal in dict.fromkeys(protected):
        at = joined.find(literal)
        if at >= 0 and literal:
            first = int(np.searchsorted(units.start, at, "right")) - 1
            after = int(np.searchsorted(units.start, at + len(literal), "left"))
            spans.append(slice(max(first, 0), after))
    return spans


def _fit(selection: _Selection, target: int, count: TokenCounter) -> tuple[Array, str, int]:
    """Keep as much as fits: correct the estimate of the size by the counted one until the target is met closely."""
    best: tuple[Array, str, int] = (np.zeros(len(selection.values), bool), "", 0)
    aim = float(target)
    for _ in range(_ATTEMPTS):
        kept = _choose(selection, aim)
        text = render(selection.units, kept, selection.speakers)
        tokens = count(text) if text else 0
        if best[2] <= tokens <= target:
            best = (kept, text, tokens)
        if target * (1 - _TOLERANCE) <= tokens <= target or not text or kept.all():
            break
        aim *= min(2.0, max(0.5, (target * (1 - _TOLERANCE / 2)) / max(tokens, 1)))
    return best


def _choose(selection: _Selection, target: float) -> Array:
    """Return as many units as the target takes, in the order of their value per token."""
    fits, exceeds = 0, len(selection.order) + 1
    best = over = np.zeros(len(selection.order), bool)
    while exceeds - fits > 1:
        number = (fits + exceeds) // 2
        kept = _best_units(selection, number)
        if _size(selection, kept) <= target:
            best, fits = kept, number
        else:
            over, exceeds = kept, number
    return best | _first_sentences(selection, over & ~best, target - _size(selection, best))


def _best_units(selection: _Selection, number: int) -> Array:
    """Return the best units with those bound to them, without lines that are worth less than their label costs."""
    units = selection.units
    chosen = selection.rank < number
    threshold = selection.density[selection.order[number - 1]] if number < len(chosen) else 0.0
    surplus = selection.values[chosen] - threshold * units.cost[chosen]
    gain = np.bincount(units.utterance[chosen], surplus, len(selection.speakers.of_utterance))
    is_worth = gain >= threshold * selection.speakers.label_cost
    return selection.bindings.apply(chosen & is_worth[units.utterance])


def _first_sentences(selection: _Selection, extra: Array, room: float) -> Array:
    """Return the part of equally good units that fits: whole sentences, from the first."""
    units = selection.units
    cost = np.zeros(int(units.sentence[-1]) + 1)
    np.add.at(cost, units.sentence[extra], units.cost[extra])
    cost[cost > 0] += selection.speakers.label_cost
    return extra & (np.cumsum(cost) <= room)[units.sentence]


def _size(selection: _Selection, kept: Array) -> float:
    """Estimate the tokens of a rendering: units, labels where the speaker changes, and question marks."""
    units = selection.units
    said = np.unique(units.utterance[kept])
    speakers = selection.speakers.of_utterance[said]
    changes = int((np.diff(speakers) != 0).sum()) + 1 if len(speakers) else 0
    questions = len(np.unique(units.sentence[kept & units.is_question]))
    return float(units.cost[kept].sum()) + changes * selection.speakers.label_cost + questions
