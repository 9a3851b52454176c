"""Write kept units as lines: one for each turn of a speaker, under a short label that a legend explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.capabilities.compaction.reduction.units import LINE, SENTENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.compaction.reduction.model import Utterance
    from weft.capabilities.compaction.reduction.units import Units
    from weft.kernel.tokens import TokenCounter

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


def render(units: Units, kept: Array, speakers: Speakers) -> str:
    """Write the kept units. The first word of each sentence is capitalised; questions keep their mark."""
    chosen = np.flatnonzero(kept)
    if not len(chosen):
        return ""
    forms = units.forms
    speaker_of = speakers.of_utterance[units.utterance[chosen]].tolist()
    sentences = units.sentence[chosen].tolist()
    asks = units.is_question[chosen].tolist()
    parts: list[str] = [f"{speakers.legend}\n"] if speakers.legend else []
    speaker = sentence = last = -1
    was_asked = was_line = False
    for at, who, number, asked in zip(chosen.tolist(), speaker_of, sentences, asks, strict=True):
        form = forms[units.form[at]]
        word = form.core
        is_line = form.kind == LINE
        if number != sentence and was_asked:
            parts.append("?")
        if who != speaker:
            parts.append(f"\n{speakers.labels[who]}:")
        if is_line:
            gap = f"\n{_OMITTED}" if was_line and at != last + 1 and who == speaker else ""
            parts.append(f"{gap}\n{word}")
        elif form.kind == SENTENCE:
            parts.append(word)
        else:
            parts.append("\n" if was_line and who == speaker else " ")
            parts.append(word if number == sentence else _capitalised(word))
        speaker, sentence, last, was_asked, was_line = who, number, at, asked, is_line
    parts.append("?" if was_asked else "")
    return "".join(parts).lstrip("\n")


def _capitalised(word: str) -> str:
    return word[0].upper() + word[1:]
