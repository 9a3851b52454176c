"""Write kept units as lines: one for each turn of a speaker, under a short label that a legend explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weftline.windows.compaction.reduction.units import LINE, WORD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.tokens import TokenCounter
    from weftline.windows.compaction.reduction.model import Utterance
    from weftline.windows.compaction.reduction.units import Units

    Array = np.ndarray[Any, Any]

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
