"""What is reduced, and the result: without numpy, which only reducing needs."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

# How many sentences, questions, lines and the like are left out, by speaker and kind.
Losses = Counter[tuple[str, str]]


class Utterance(NamedTuple):
    """What one speaker said. ``is_verbatim``: already shortened by someone else, to be kept or dropped by lines.

    ``is_call``: a call of a tool.
    """

    speaker: str
    text: str
    is_verbatim: bool = False
    is_call: bool = False


class ReducedText(NamedTuple):
    """A shorter text of the same utterances.

    ``losses`` are the sentences and lines without a word in it, ``shortened`` counts sentences that lost some words.
    ``missing`` are the protected strings that did not fit.
    """

    text: str
    tokens: int
    losses: Losses
    shortened: int
    missing: list[str]
