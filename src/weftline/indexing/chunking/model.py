"""Types of chunking: options, chunks, and the outline of a text with the boundaries at which it may be split."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator


DEFAULT_TOKENS = 512
DEFAULT_OVERLAP = 64
# Strengths of boundaries: the higher, the less is lost by splitting there.
CHARACTER, WORD, SENTENCE, LINE, BLOCK, SECTION = range(6)
MAX_SECTION_LEVEL = 6
_START = attrgetter("start")


class ChunkingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chunking of texts. The overlap is at most half a chunk."""

    chunk_tokens: Annotated[int, msgspec.Meta(ge=32, le=8192, description="Maximum tokens of a chunk.")] = (
        DEFAULT_TOKENS
    )
    overlap_tokens: Annotated[
        int, msgspec.Meta(ge=0, le=4096, description="Tokens repeated from the previous chunk; below chunk_tokens.")
    ] = DEFAULT_OVERLAP


class TextSpan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A chunk of a text: its characters from ``start`` to ``end``.

    ``heading`` is its path of headings, symbols or fields, joined by `` > ``. ``kind`` is prose, code, table, turns,
    record or page. ``speaker`` lists the speakers of a transcript, separated by commas; ``timestamp`` is that of its
    first turn or record, in microseconds.
    """

    start: int
    end: int
    tokens: int
    kind: str = "prose"
    heading: str = ""
    speaker: str = ""
    timestamp: int | None = None


class CodeSymbol(msgspec.Struct, frozen=True, gc=False):
    """A named symbol of a program, such as a class or function, from ``start`` to ``end``."""

    start: int
    end: int
    name: str


class ParsedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a document.

    ``title`` is empty if the document has none. ``names`` are the symbols of a program, outer ones first; empty if
    unknown.
    """

    text: str
    media_type: str
    title: str = ""
    names: tuple[CodeSymbol, ...] = ()


def section_strength(level: int) -> int:
    """Return the strength of a boundary before a heading of this level, 1 being the highest."""
    return SECTION + MAX_SECTION_LEVEL - min(level, MAX_SECTION_LEVEL)


@dataclass(frozen=True, slots=True)
class Label:
    """Describes a text from ``start`` until the next label. A heading has no kind of its own."""

    start: int
    path: tuple[str, ...] = ()
    kind: str = "prose"
    speaker: str = ""
    timestamp: int | None = None


@dataclass(slots=True)
class Outline:
    """Boundaries of a text in order: a chunk may start at ``starts[n]``, with strength ``strengths[n]``.

    Text between two boundaries stays together if it fits. ``heading_style``: the heading of a chunk with several labels
    is their common prefix, or the range from the first to the last.
    """

    heading_style: Literal["common", "range"] = "common"
    starts: list[int] = field(default_factory=list)
    strengths: list[int] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    def add_boundary(self, start: int, strength: int) -> None:
        """Add a boundary at the end; at the same position the stronger one counts."""
        if self.starts and self.starts[-1] >= start:
            self.strengths[-1] = max(self.strengths[-1], strength)
        else:
            self.starts.append(start)
            self.strengths.append(strength)

    def labels_between(self, start: int, end: int) -> list[Label]:
        """Return the labels of the text from start to end."""
        first = bisect_right(self.labels, start, key=_START) - 1
        last = bisect_right(self.labels, end - 1, key=_START)
        return self.labels[max(first, 0) : last]


# Paragraph, sentence and word boundaries, in any script.

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
