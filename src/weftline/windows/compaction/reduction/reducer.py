"""Reduce a conversation to a number of tokens: choose the words of most value per token, and write them as lines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weftline.windows.compaction.reduction.features import load_model, unit_values
from weftline.windows.compaction.reduction.model import ReducedText, Utterance
from weftline.windows.compaction.reduction.units import (
    LINE,
    WORD,
    Bindings,
    Units,
    find_bindings,
    split,
)
from weftline.windows.compaction.verification import CRITICAL_WORDS, IGNORED_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.ports import TokenCounter
    from weftline.windows.compaction.reduction.features import WordModel
    from weftline.windows.compaction.reduction.model import Losses

    Array = np.ndarray[Any, Any]


# Write kept units as lines: one for each turn of a speaker, under a short label that a legend explains.

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OMITTED = "\u2026"


class Speakers(NamedTuple):
    """Speakers by number, the speaker of each utterance, and the label of each; ``legend`` explains short labels."""

    names: list[str]
    of_utterance: Array
    labels: list[str]
    legend: str
    label_cost: float


def label_speakers(texts: Sequence[Utterance], count: TokenCounter) -> Speakers:
    """Label each speaker by the name, or by a letter where that saves tokens in spite of the legend."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(each.speaker for each in texts))}
    names = list(numbers)
    of_utterance = np.fromiter((numbers[each.speaker] for each in texts), np.int64, len(texts))
    turns = _turns(of_utterance, len(names))
    labels: list[str] = []
    for name, number in zip(names, turns, strict=True):
        letter = _letter(name, labels)
        saved = number * (count(f"\n{name}:" * 4) - count(f"\n{letter}:" * 4)) / 4
        labels.append(letter if saved > count(f"{letter} = {name}; ") else name)
    legend = "; ".join(f"{label} = {name}" for label, name in zip(labels, names, strict=True) if label != name)
    mean = float(np.mean([count(f"\n{label}:" * 4) / 4 for label in labels])) if labels else 0.0
    return Speakers(names, of_utterance, labels, legend, mean)


def _turns(speakers: Array, number: int) -> list[int]:
    """Count the turns of each speaker: utterances that follow one of another speaker."""
    begins = np.diff(speakers, prepend=-1) != 0
    turns: list[int] = np.bincount(speakers[begins], minlength=number).tolist()
    return turns


def _letter(name: str, used: list[str]) -> str:
    """Return the first free letter: an initial of the name if possible, else another, else a numbered one."""
    initials = [word[0].upper() for word in name.split() if word[0].isalpha()]
    free = (letter for letter in (*initials, *_LETTERS) if letter not in used)
    return next(free, f"S{len(used)}")


def render(units: Units, kept: Array, speakers: Speakers, is_apart: Array) -> str:
    """Write the kept units. The first word of each sentence is capitalised; questions keep their mark.

    ``is_apart``: the sentence of the unit is also set apart by full stops. They would cost too much for every sentence.
    """
    chosen = np.flatnonzero(kept)
    if not len(chosen):
        return ""
    form = units.form[chosen]
    parts = list(map(units.written.__getitem__, form.tolist()))
    sentence, speaker = units.sentence[chosen], speakers.of_utterance[units.utterance[chosen]]
    begins = np.diff(sentence, prepend=-1) != 0
    for at in np.flatnonzero(begins).tolist():
        parts[at] = _capitalised(parts[at])
    kinds = units.kinds()[chosen]
    is_line, is_word = kinds == LINE, kinds == WORD
    if is_line.any():
        _break_lines(parts, chosen, is_line, speaker)
    turns = np.diff(speaker, prepend=-1) != 0
    ends = np.append(begins[1:], True)
    is_question = units.is_question[chosen]
    for at in np.flatnonzero(ends & is_question).tolist():
        parts[at] += "?"
    apart = is_apart[chosen]
    is_stop = ends & ~is_question & ~np.append(turns[1:], True) & (apart | np.append(apart[1:], False)) & is_word
    for at in np.flatnonzero(is_stop).tolist():
        parts[at] += "."
    for at in np.flatnonzero(turns).tolist():
        parts[at] = f"\n{speakers.labels[speaker[at]]}:{parts[at]}"
    text = "".join(parts).lstrip("\n")
    return f"{speakers.legend}\n{text}" if speakers.legend else text


def _break_lines(parts: list[str], chosen: Array, is_line: Array, speaker: Array) -> None:
    """Write lines of code and data as lines, and mark where some are left out between them."""
    continues = np.diff(speaker, prepend=-1) == 0
    follows = np.insert(is_line[:-1], 0, False) & continues
    has_gap = follows & is_line & (np.diff(chosen, prepend=-1) != 1)
    for at in np.flatnonzero(has_gap).tolist():
        parts[at] = f"\n{_OMITTED}{parts[at]}"
    for at in np.flatnonzero(follows & ~is_line).tolist():
        parts[at] = f"\n{parts[at].lstrip(' ')}"


def _capitalised(part: str) -> str:
    """Capitalise a word after the space before it; identifiers stay as they are."""
    return f" {part[1:2].upper()}{part[2:]}" if part[1:].isalpha() and part[:1] == " " else part


__all__ = ["ReducedText", "Utterance", "reduce_texts"]

_PROTECTED_VALUE = 1000.0
_LEAST_COST = 0.25
# Longer strings are statements, not literals.
_MAX_LITERAL_WORDS = 5
# Statements take this part of the target whole; further ones are shortened, too.
_MUCH = 0.25
# Renderings that are counted to meet the target, and to use the rest of it.
_ATTEMPTS = 5
_FILLINGS = 6
# The first estimate need not be better than this part of the units.
_PRECISION = 500
# Part of the target that may remain unused.
_TOLERANCE = 0.002
# Estimates of the size are better than this.
_SLACK = 1.2


class _Selection(NamedTuple):
    units: Units
    values: Array
    density: Array
    order: Array
    rank: Array
    bindings: Bindings
    speakers: Speakers
    is_apart: Array


class _Fitted(NamedTuple):
    kept: Array
    text: str
    tokens: int


def reduce_texts(
    texts: Sequence[Utterance],
    target_tokens: int,
    protected: Sequence[str],
    count: TokenCounter,
    model: WordModel | None = None,
) -> ReducedText:
    """Return the texts in at most ``target_tokens``; ``protected`` strings, the most important first, stay if they fit.

    ``model``: another one than that of the package, to evaluate it.
    """
    units = split(texts, count)
    if not len(units.form):
        return ReducedText("", 0, Counter(), 0, list(protected))
    share = target_tokens / max(float(units.cost.sum()), 1.0)
    values = unit_values(units, share, model or load_model())
    is_protected = _protected_units(texts, units, protected, target_tokens)
    values[is_protected] = np.maximum(values[is_protected], _PROTECTED_VALUE)
    density = values / np.maximum(units.cost, _LEAST_COST)
    order = np.argsort(-density, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    speakers = label_speakers(texts, count)
    selection = _Selection(
        units, values, density, order, rank, find_bindings(units), speakers, _set_apart(units, is_protected)
    )
    kept, text, tokens = _fit(selection, target_tokens, count)
    losses, shortened = _losses(texts, units, kept)
    return ReducedText(text, tokens, losses, shortened, [literal for literal in protected if literal not in text])


def _losses(texts: Sequence[Utterance], units: Units, kept: Array) -> tuple[Losses, int]:
    """Return the sentences and lines that are left out, by speaker and kind, and how many lost a part."""
    sentences, first, sizes = np.unique(units.sentence, return_index=True, return_counts=True)
    left = np.bincount(units.sentence[kept], minlength=int(sentences[-1]) + 1)[sentences]
    gone = first[left == 0]
    losses: Losses = Counter()
    for number, is_question in zip(units.utterance[gone].tolist(), units.is_question[gone].tolist(), strict=True):
        said = texts[number]
        kind = "calls" if said.is_call else "lines" if said.is_verbatim else "questions" if is_question else "sentences"
        losses[said.speaker.removesuffix(" called") if said.is_call else said.speaker, kind] += 1
    return losses, int(((left > 0) & (left < sizes)).sum())


def _protected_units(texts: Sequence[Utterance], units: Units, protected: Sequence[str], target: int) -> Array:
    """Return which units are part of the first occurrence of a protected string.

    The first strings stay whole. Long ones, statements, for which too little of the target is left, lose the words that
    the verification of facts ignores; not beside results of tools, where little else is said.
    """
    is_protected = np.zeros(len(units.form), bool)
    if not protected:
        return is_protected
    joined = "\n".join(utterance.text for utterance in texts)
    is_whole = (units.kinds() == LINE).any()
    is_ignored = np.zeros(len(units.form), bool) if is_whole else units.among(IGNORED_WORDS)
    left = target * _MUCH
    for literal in dict.fromkeys(protected):
        at = joined.find(literal) if literal else -1
        if at >= 0:
            first = max(int(np.searchsorted(units.start, at, "right")) - 1, 0)
            after = int(np.searchsorted(units.start, at + len(literal), "left"))
            left -= float(units.cost[first:after][~is_protected[first:after]].sum())
            is_short = after - first <= _MAX_LITERAL_WORDS
            is_protected[first:after] |= is_short or left >= 0 or ~is_ignored[first:after]
    return is_protected


def _set_apart(units: Units, is_protected: Array) -> Array:
    """Return the units of sentences that must not run into others.

    Those are the negated and conditional ones, and those with a word that could change the sense of a protected one.
    """
    size = int(units.sentence[-1]) + 1
    is_apart, protected, critical = (np.zeros(size, bool) for _ in range(3))
    is_apart[units.sentence[units.flags("is_negation") | units.flags("is_condition")]] = True
    protected[units.sentence[is_protected]] = True
    critical[units.sentence[units.among(CRITICAL_WORDS)]] = True
    near = protected | np.append(protected[1:], False) | np.insert(protected[:-1], 0, False)
    is_apart |= critical & near
    return is_apart[units.sentence]


def _fit(selection: _Selection, target: int, count: TokenCounter) -> _Fitted:
    """Keep as much as fits: estimate the number of units, then correct it by counting tokens."""
    over = _Fitted(np.ones(len(selection.rank), bool), "", int(_size(selection, selection.rank >= 0)))
    if over.tokens <= target * _SLACK:
        over = _rendered(selection, over.kept, count)
        if over.tokens <= target:
            return over
    best = _Fitted(np.zeros(len(selection.rank), bool), "", 0)
    exceeds = len(selection.rank)
    fits, number = 0, _estimate(selection, target)
    for _ in range(_ATTEMPTS):
        fitted = _rendered(selection, _best_units(selection, number), count)
        if fitted.tokens <= target:
            best, fits = fitted, number
        else:
            over, exceeds = fitted, number
        if exceeds - fits <= 1 or target * (1 - _TOLERANCE) <= best.tokens:
            break
        number = fits + int((exceeds - fits) * (target - best.tokens) / max(over.tokens - best.tokens, 1))
        number = min(max(number, fits + 1), exceeds - 1)
    return _filled(selection, best, over, target, count)


def _rendered(selection: _Selection, kept: Array, count: TokenCounter) -> _Fitted:
    text = render(selection.units, kept, selection.speakers, selection.is_apart)
    return _Fitted(kept, text, count(text) if text else 0)


def _filled(selection: _Selection, best: _Fitted, over: _Fitted, target: int, count: TokenCounter) -> _Fitted:
    """Use the remaining room for a part of what the next larger selection has."""
    part = 1.0
    for _ in range(_FILLINGS):
        room = part * (target - best.tokens)
        extra = _first_sentences(selection, over.kept & ~best.kept, room)
        if best.tokens >= target * (1 - _TOLERANCE) or not extra.any():
            break
        fitted = _rendered(selection, best.kept | extra, count)
        if fitted.tokens <= target:
            best = fitted
        else:
            # Labels and question marks add to the cost of the words.
            part *= 0.9 * (target - best.tokens) / (fitted.tokens - best.tokens)
    return best


def _estimate(selection: _Selection, target: float) -> int:
    """Return the number of units that about fill the target."""
    fits, exceeds = 0, len(selection.order) + 1
    while exceeds - fits > max(1, len(selection.order) // _PRECISION):
        number = (fits + exceeds) // 2
        if _size(selection, _best_units(selection, number)) <= target:
            fits = number
        else:
            exceeds = number
    return max(fits, 1)


def _best_units(selection: _Selection, number: int) -> Array:
    """Return the best units with those bound to them, without lines that are worth less than their label costs."""
    units = selection.units
    chosen = selection.rank < number
    threshold = selection.density[selection.order[number - 1]] if number < len(chosen) else 0.0
    surplus = np.where(chosen, selection.values - threshold * units.cost, 0.0)
    gain = np.bincount(units.utterance, surplus, len(selection.speakers.of_utterance))
    is_worth = gain >= threshold * selection.speakers.label_cost
    return selection.bindings.apply(chosen & is_worth[units.utterance])


def _first_sentences(selection: _Selection, extra: Array, room: float) -> Array:
    """Return the part of equally good units that fits: whole sentences, from the first."""
    units = selection.units
    cost = np.bincount(units.sentence[extra], units.cost[extra], int(units.sentence[-1]) + 1)
    return extra & (np.cumsum(cost) <= room)[units.sentence]


def _size(selection: _Selection, kept: Array) -> float:
    """Estimate the tokens of a rendering: units, labels where the speaker changes, and marks of sentences."""
    units = selection.units
    is_said = np.zeros(len(selection.speakers.of_utterance), bool)
    is_said[units.utterance[kept]] = True
    speakers = selection.speakers.of_utterance[is_said]
    changes = int((np.diff(speakers) != 0).sum()) + 1 if len(speakers) else 0
    has_mark = np.zeros(int(units.sentence[-1]) + 1, bool)
    has_mark[units.sentence[kept & (units.is_question | selection.is_apart)]] = True
    return float(units.cost[kept].sum()) + changes * selection.speakers.label_cost + int(has_mark.sum())
