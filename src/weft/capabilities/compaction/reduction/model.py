"""What is reduced, and the result."""

from __future__ import annotations

from typing import NamedTuple


class Utterance(NamedTuple):
    """What one speaker said. ``is_verbatim``: already shortened by someone else, to be kept or dropped by lines."""

    speaker: str
    text: str
    is_verbatim: bool = False


class ReducedText(NamedTuple):
    """A shorter text of the same utterances.

    ``dropped_utterances`` are the indexes of those without a word in it; ``words_before`` and ``words`` count words.
    ``missing`` are the protected strings that did not fit.
    """

    text: str
    tokens: int
    dropped_utterances: list[int]
    words_before: int
    words: int
    missing: list[str]
