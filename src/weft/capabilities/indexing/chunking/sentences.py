"""Paragraphs and sentences, in any script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weft.capabilities.indexing.chunking.boundaries import BLOCK, LINE, SENTENCE, WORD, Outline

if TYPE_CHECKING:
    from collections.abc import Iterator

_LATIN = r".!?\u2026"
# Those of Chinese and Japanese, Hindi, Arabic and Urdu, Amharic and Armenian.
_OTHER = r"\u3002\uff0e\uff01\uff1f\uff61\u0964\u0965\u061f\u06d4\u1362\u0589"
_CLOSING = r"\"')\]\u201d\u2019\xbb\u300d\u300f\uff09"
# A mark ends a sentence with white space behind it, unless it shortens a word; those of other scripts need none. What
# is tried at every character is one set. A mark begins a match only at the first of its run: a megabyte of dots is
# looked at once.
_SENTENCE_END = re.compile(
    rf"""
    [{_LATIN}{_OTHER}]
    (?:
        (?<=[{_LATIN}])
        (?<![{_LATIN}].)
        (?<!\b[A-Za-z].)
        (?<!\b(?i:mr|ms|dr|st|vs|no|jr|sr|cf|pp).)
        (?<!\b(?i:mrs|etc|fig|vol|inc|e\.g|i\.e).)
        (?<!\b(?i:prof|dept).)
        [{_LATIN}]*+ [{_CLOSING}]*+ \s++
    |
        (?<=[{_OTHER}])
        (?<![{_OTHER}].)
        [{_OTHER}]*+ [{_CLOSING}]*+ \s*+
    )
    """,
    re.VERBOSE,
)
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)++")
_LINE_END = re.compile(r"\n")
_WORD_WITH_GAP = re.compile(r"\s*+\S++\s*+")
_FEWEST_CHARACTERS = 24


def add_prose(outline: Outline, text: str, start: int, end: int) -> None:
    """Add the sentences of a paragraph, all but the first. A line that ends with a sentence is a better place."""
    for match in _SENTENCE_END.finditer(text, start, end):
        if match.end() < end:
            outline.place(match.end(), LINE if "\n" in match[0] else SENTENCE)


def add_paragraphs(outline: Outline, text: str, start: int, end: int, strength: int = BLOCK) -> None:
    """Add paragraphs with their sentences; the first paragraph is as good a place as is said."""
    for at, until in spans(text, start, end):
        outline.place(at, strength)
        add_prose(outline, text, at, until)
        strength = BLOCK


def spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where paragraphs begin and end."""
    for match in _BLANK_LINES.finditer(text, start, end):
        yield start, match.end()
        start = match.end()
    if start < end:
        yield start, end


def line_ends(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return ((match.end(), LINE) for match in _LINE_END.finditer(text, start, end) if match.end() < end)


def sentence_ends(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return ((match.end(), SENTENCE) for match in _SENTENCE_END.finditer(text, start, end) if match.end() < end)


def word_ends(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of words, a few words at a time."""
    began = start
    for match in _WORD_WITH_GAP.finditer(text, start, end):
        if match.end() - began >= _FEWEST_CHARACTERS and match.end() < end:
            yield match.end(), WORD
            began = match.end()
