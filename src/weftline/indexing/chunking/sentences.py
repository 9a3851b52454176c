"""Paragraph, sentence and word boundaries, in any script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weftline.indexing.chunking.model import BLOCK, LINE, SENTENCE, WORD, Outline

if TYPE_CHECKING:
    from collections.abc import Iterator

_LATIN = r".!?\u2026"
# Chinese and Japanese, Hindi, Arabic and Urdu, Amharic and Armenian.
_OTHER = r"\u3002\uff0e\uff01\uff1f\uff61\u0964\u0965\u061f\u06d4\u1362\u0589"
_CLOSING = r"\"')\]\u201d\u2019\xbb\u300d\u300f\uff09"
# A mark ends a sentence if white space follows, unless it abbreviates a word; marks of other scripts need no space.
# For speed, one character class is tried at every position, and only the first mark of a run starts a match: a megabyte
# of dots is scanned once.
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
_MIN_CHARACTERS = 24


def add_sentences(outline: Outline, text: str, start: int, end: int) -> None:
    """Add the sentence boundaries within a paragraph. A sentence that ends a line is a stronger boundary."""
    for match in _SENTENCE_END.finditer(text, start, end):
        if match.end() < end:
            outline.add_boundary(match.end(), LINE if "\n" in match[0] else SENTENCE)


def add_paragraphs(outline: Outline, text: str, start: int, end: int, strength: int = BLOCK) -> None:
    """Add paragraph boundaries with their sentences; ``strength`` is that of the first."""
    for at, until in paragraph_spans(text, start, end):
        outline.add_boundary(at, strength)
        add_sentences(outline, text, at, until)
        strength = BLOCK


def paragraph_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each paragraph."""
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
    """Yield the ends of words, every few words."""
    began = start
    for match in _WORD_WITH_GAP.finditer(text, start, end):
        if match.end() - began >= _MIN_CHARACTERS and match.end() < end:
            yield match.end(), WORD
            began = match.end()
