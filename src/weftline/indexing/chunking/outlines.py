"""Outlines by media type: where a text may be split."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.indexing.chunking.model import (
    BLOCK,
    LINE,
    WORD,
    CodeSymbol,
    Label,
    Outline,
    add_paragraphs,
    add_sentences,
    section_strength,
)
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# Text without markup: split at paragraphs and sentences; pages of a PDF, separated by form feeds, are labelled.

PAGE_BREAK = "\f"
_PAGE = re.compile(r"[^\f]*\f?")


def outline_of_plain(text: str) -> Outline:
    outline = Outline()
    add_paragraphs(outline, text, 0, len(text))
    return outline


def outline_of_pages(text: str) -> Outline:
    outline = Outline(heading_style="range")
    for number, match in enumerate(_PAGE.finditer(text), start=1):
        if match[0]:
            outline.labels.append(Label(match.start(), (f"page {number}",), "page"))
            add_paragraphs(outline, text, match.start(), match.end(), strength=BLOCK)
    return outline


# Markdown: sections under their headings; code blocks and table rows stay whole if they fit.

_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=++|-++)[ \t]*+$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"[ \t]*+(?:[-*+]|\d{1,9}[.)])[ \t]")
_BLANK = " \t"
_MAX_HEADING = 200


def outline_of_markdown(text: str) -> Outline:
    return _Scan(text).outline


def title_of_markdown(text: str) -> str:
    """Return the first heading of the highest level."""
    for label in outline_of_markdown(text).labels:
        if len(label.path) == 1:
            return label.path[0]
    return ""


class _Scan:
    """Scans the lines once; a paragraph stays open until another block starts."""

    def __init__(self, text: str) -> None:
        self.outline = Outline()
        self._text = text
        self._path: list[tuple[int, str]] = []
        self._paragraph: int | None = None
        self._kind = ""
        self._below_heading = False
        self._lines = _lines(text)
        for start, line in self._lines:
            self._take(start, line)
        self._close_paragraph(len(text))

    def _take(self, start: int, line: str) -> None:
        first = line.lstrip()[:1]
        if not first:
            self._close_paragraph(start)
        elif first == "#" and (heading := _HEADING.match(line)):
            self._close_paragraph(start)
            self._heading(start, len(heading[1]), _without_closing(line[heading.end() :]))
        elif first in "`~" and (fence := _FENCE.match(line)):
            self._close_paragraph(start)
            self._block(start, "code", BLOCK)
            self._skip_to_closing(fence[1])
        elif first == "|":
            self._row(start)
        elif first in "=-" and self._paragraph is not None and (line_below := _UNDERLINE.match(line)):
            self._underlined(start, 1 if line_below[1][0] == "=" else 2)
        elif first in "-*+0123456789" and _ITEM.match(line):
            self._item(start)
        else:
            self._prose(start)

    def _heading(self, start: int, level: int, name: str) -> None:
        self._path = [above for above in self._path if above[0] < level]
        self._path.append((level, name[:_MAX_HEADING]))
        # A heading directly followed by another stays with it.
        self.outline.add_boundary(start, WORD if self._below_heading else section_strength(level))
        self._label(start, "")
        self._below_heading = True

    def _underlined(self, start: int, level: int) -> None:
        first = start if self._paragraph is None else self._paragraph
        self._paragraph = None
        self._heading(first, level, " ".join(self._text[first:start].split()))

    def _skip_to_closing(self, fence: str) -> None:
        for _, line in self._lines:
            closing = line.strip()
            if closing.startswith(fence) and not closing.strip(fence[0]):
                return

    def _row(self, start: int) -> None:
        if self._kind == "table":
            self.outline.add_boundary(start, LINE)
        else:
            self._close_paragraph(start)
            self._block(start, "table", BLOCK)

    def _item(self, start: int) -> None:
        if self._paragraph is not None:
            add_sentences(self.outline, self._text, self._paragraph, start)
            self.outline.add_boundary(start, LINE)
        else:
            self._block(start, "prose", BLOCK)
        self._paragraph = start

    def _prose(self, start: int) -> None:
        if self._paragraph is None:
            self._block(start, "prose", BLOCK)
            self._paragraph = start

    def _block(self, start: int, kind: str, strength: int) -> None:
        self.outline.add_boundary(start, WORD if self._below_heading else strength)
        self._below_heading = False
        if kind != self._kind:
            self._label(start, kind)

    def _close_paragraph(self, end: int) -> None:
        if self._paragraph is not None:
            add_sentences(self.outline, self._text, self._paragraph, end)
            self._paragraph = None
        elif self._kind == "table":
            self._kind = "ended table"

    def _label(self, start: int, kind: str) -> None:
        self._kind = kind
        self.outline.labels.append(Label(start, tuple(name for _, name in self._path if name), kind))


def _without_closing(heading: str) -> str:
    """Return the text of a heading, without closing number signs."""
    text = heading.strip()
    bare = text.rstrip("#")
    return text if bare and bare[-1] not in _BLANK else bare.rstrip()


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1


# Transcripts: split between turns, with speakers and times. WebVTT, SubRip, JSON lines, and ``Name: words``.

ISO_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?"
_CLOCK = r"(?:\d{1,3}:)?\d{1,2}:\d\d(?:[.,]\d{1,3})?"
_TIME = rf"(?:{ISO_TIME}|{_CLOCK})"
_NAME = r"[^\W\d_][\w .,'\u2019&/-]{0,39}?"
_TURN = re.compile(
    rf"^[ \t]*+(?:[\[(<]?(?P<before>{_TIME})[\])>]?[ \t]*+(?:[-\u2013][ \t]*+)?+)?"
    rf"\**+(?P<name>{_NAME}(?:[ ]\([^()\n]{{1,30}}\))?)"
    rf"(?:[ \t]++[\[(]?(?P<after>{_TIME})[\])]?)?\**+[ \t]*+:\**+(?!//)(?=\s)",
    re.MULTILINE,
)
_CUE = re.compile(rf"^(?:[^\n]*+\n)??(?P<time>{_CLOCK})[ \t]++-->[ \t]++{_CLOCK}[^\n]*+\n?", re.MULTILINE)
_CUE_SPEAKER = re.compile(rf"<v(?:\.[^ >\n]*+)?[ ](?P<voice>[^>\n]{{1,60}})>|(?P<name>{_NAME}):\s")
_MIN_TURNS = 4
_MIN_SHARE = 0.6
_MAX_SPEAKERS_PER_TURN = 0.75
_ISO = re.compile(ISO_TIME)
_MILLISECONDS = 10**11


def looks_like_transcript(text: str) -> bool:
    """Return whether most lines are turns, and speakers recur."""
    lines = [line for line in text.split("\n") if line.strip()]
    speakers = Counter(match["name"] for line in lines if (match := _TURN.match(line)))
    turns = speakers.total()
    recurring = turns >= _MIN_TURNS and len(speakers) <= _MAX_SPEAKERS_PER_TURN * turns
    return recurring and turns >= _MIN_SHARE * len(lines)


def outline_of_transcript(text: str) -> Outline:
    turns = list(_cues(text)) or list(_turns(text))
    return outline_of_turns(text, turns)


def outline_of_turns(text: str, turns: list[Label]) -> Outline:
    """Return the outline of known turns; a long one is split between its sentences."""
    outline = Outline(heading_style="range", labels=[Label(0), *turns])
    edges = [*(turn.start for turn in turns), len(text)]
    add_paragraphs(outline, text, 0, edges[0])
    for start, end in pairwise(edges):
        outline.add_boundary(start, LINE)
        add_sentences(outline, text, start, end)
    return outline


def _turns(text: str) -> Iterator[Label]:
    for match in _TURN.finditer(text):
        yield _label(match.start(), match["before"] or match["after"] or "", match["name"])


def _cues(text: str) -> Iterator[Label]:
    speaker = ""
    for match in _CUE.finditer(text):
        match_speaker = _CUE_SPEAKER.match(text, match.end())
        speaker = (match_speaker["voice"] or match_speaker["name"]) if match_speaker else speaker
        yield _label(match.start(), match["time"], speaker)


def _label(start: int, time: str, speaker: str) -> Label:
    timestamp = microseconds(time)
    clock = time if time and timestamp is None else ""
    return Label(start, (clock,) if clock else (), "turns", speaker.strip(), timestamp)


def microseconds(value: object) -> int | None:
    """Parse a time to microseconds since 1970, as UTC if it has no zone; None if it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _of_number(value)
    if not isinstance(value, str) or not _ISO.fullmatch(value.strip()):
        return None
    try:
        timestamp = datetime.fromisoformat(value.strip().replace(",", "."))
        return to_micros(timestamp.replace(tzinfo=timestamp.tzinfo or UTC))
    except (ValueError, InvalidInput):
        return None


def _of_number(number: float) -> int | None:
    """Parse seconds or milliseconds since 1970; smaller numbers have another epoch."""
    if not 10**9 <= number < 10**13:
        return None
    return int(number * 1000) if number >= _MILLISECONDS else int(number * 1_000_000)


# Records: JSON, JSON lines, CSV and logs. A record stays whole if it fits; chunks have field paths or columns.

_SPEAKER_FIELDS = ("speaker", "role", "author", "sender", "name", "user", "from")
_TEXT_FIELDS = ("text", "content", "message", "utterance", "body")
_TIME_FIELDS = ("time", "timestamp", "ts", "created_at", "date", "start")
_GAP = re.compile(r"[\s,:]*")
_LINE = re.compile(r"[^\n]+")
# Longer values are split at their members; shorter ones stay whole.
_MIN_SPLIT_CHARACTERS = 400
_MAX_DEPTH = 8
_MAX_FIELD = 80
_raw_decode = json.JSONDecoder().raw_decode
# A quoted field may contain line breaks; a quote elsewhere is an ordinary character.
_ROW_END = re.compile(r'(?:(?<=[,;\t\n|])|(?<![\s\S]))"(?:[^"]|"")*+"|\n')
_MAX_NAMES = 400
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b"
_SYSLOG = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ ]++\d{1,2}[ ]\d\d:\d\d:\d\d"
_ACCESS = r"\S++[ ]\S++[ ]\S++[ ]\[\d{1,2}/\w{3}/\d{4}:"
_RECORD = re.compile(rf"^[\[(<]?(?:(?P<time>{ISO_TIME})|{_SYSLOG}|{_LEVEL}|{_ACCESS})", re.MULTILINE)
_MIN_RECORDS = 4
_MIN_SHARE_OF_RECORDS = 0.3
# A line without a timestamp continues the previous record, like a stack trace.
_RECORD_KIND = "record"


def outline_of_json(text: str) -> Outline:
    outline = Outline()
    try:
        _Walk(text, outline).value(_GAP.match(text, 0).end(), (), 0)  # type: ignore[union-attr]
    except (ValueError, IndexError, RecursionError):
        # Invalid or nested too deeply: chunked as text.
        return outline_of_plain(text)
    return outline


def outline_of_json_lines(text: str) -> Outline:
    lines = [match.start() for match in _LINE.finditer(text)]
    turns = _spoken_turns(text)
    if turns is not None:
        return outline_of_turns(text, turns)
    outline = Outline(labels=[Label(0, kind="record")])
    for start in lines:
        outline.add_boundary(start, LINE)
    return outline


class _Walk:
    """Finds the positions of members of JSON values by decoding them one by one."""

    def __init__(self, text: str, outline: Outline) -> None:
        self._text = text
        self._outline = outline

    def value(self, start: int, path: tuple[str, ...], depth: int) -> None:
        """Add the boundaries within a value."""
        self._outline.labels.append(Label(start, path, "record"))
        if self._text[start : start + 1] not in {"{", "["}:
            return
        is_object = self._text[start] == "{"
        at, number = self._skip(start + 1), 0
        while self._text[at] not in "]}":
            begin, key = at, str(number)
            if is_object:
                key, at = _raw_decode(self._text, at)
                at = self._skip(at)
            _, end = _raw_decode(self._text, at)
            self._member(begin, at, end, (*path, str(key)[:_MAX_FIELD]), depth)
            at, number = self._skip(end), number + 1

    def _member(self, begin: int, start: int, end: int, path: tuple[str, ...], depth: int) -> None:
        self._outline.add_boundary(begin, LINE if depth else BLOCK)
        self._outline.labels.append(Label(begin, path, "record"))
        if end - start > _MIN_SPLIT_CHARACTERS and depth < _MAX_DEPTH:
            self.value(start, path, depth + 1)

    def _skip(self, at: int) -> int:
        gap = _GAP.match(self._text, at)
        return gap.end() if gap else at


def _spoken_turns(text: str) -> list[Label] | None:
    """Return the turns of a conversation in JSON lines; None if the lines are not turns."""
    turns = []
    for match in _LINE.finditer(text):
        if match[0].isspace():
            continue
        turn = _turn(match.start(), match[0])
        if turn is None:
            return None
        turns.append(turn)
    return turns or None


def _turn(start: int, line: str) -> Label | None:
    try:
        record = msgspec.json.decode(line, type=dict[str, Any])
    except (ValueError, RecursionError):
        return None
    speaker = _first(record, _SPEAKER_FIELDS)
    if not isinstance(speaker, str) or not isinstance(_first(record, _TEXT_FIELDS), str):
        return None
    return Label(start, (), "turns", speaker[:_MAX_FIELD], microseconds(_first(record, _TIME_FIELDS)))


def _first(record: dict[str, Any], names: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON of any shape
    return next((record[name] for name in names if name in record), None)


def outline_of_rows(text: str) -> Outline:
    outline = Outline()
    starts = list(_row_starts(text))
    first = starts[1] if len(starts) > 1 else len(text)
    outline.labels.append(Label(0, (_column_names(text[:first]),), "table"))
    for start in starts:
        outline.add_boundary(start, LINE)
    return outline


def _row_starts(text: str) -> Iterator[int]:
    yield 0
    for match in _ROW_END.finditer(text):
        if match[0] == "\n" and match.end() < len(text):
            yield match.end()


def _column_names(row: str) -> str:
    """Return the column names of the first row; the delimiter is the most frequent candidate."""
    delimiter = max(",;\t|", key=row.count)
    names = [name.strip().strip('"').strip() for name in row.split(delimiter)]
    return ", ".join(name for name in names if name)[:_MAX_NAMES]


def looks_like_log(text: str) -> bool:
    """Return whether most lines that are not indented start like log records."""
    lines = [line for line in text.split("\n") if line.strip() and not line[0].isspace()]
    records = sum(1 for line in lines if (found := _RECORD.match(line)) and not _is_turn(line, found.end()))
    return records >= _MIN_RECORDS and records >= _MIN_SHARE_OF_RECORDS * len(lines)


def _is_turn(line: str, at: int) -> bool:
    """Return whether a time is followed by a speaker's name, as in a transcript."""
    return re.match(r"[\])>]?[ ](?!(?:TRACE|DEBUG|INFO|WARN|ERROR))[A-Z][\w ]{0,30}:[ ]", line[at:]) is not None


def outline_of_log(text: str) -> Outline:
    outline = Outline(labels=[Label(0, kind=_RECORD_KIND)])
    records = list(_RECORD.finditer(text))
    for match in records:
        outline.add_boundary(match.start(), LINE)
        if match["time"]:
            outline.labels.append(Label(match.start(), kind=_RECORD_KIND, timestamp=microseconds(match["time"])))
    return outline


# Source code: split before classes and functions, else at blank lines, else between lines.

_DEFINITION = re.compile(
    r"^(?P<indent>[ \t]*+)(?:(?:export|default|pub(?:lic|\([a-z]+\))?|private|protected|internal|static|abstract|final"
    r"|sealed|open|override|async|suspend|inline|data|case|unsafe|extern|local|partial)[ \t]++)*+"
    r"(?:class|interface|struct|enum|trait|impl|object|module|namespace|protocol|extension|record"
    r"|def|fn|func|fun|function|sub|proc)[ \t]++(?P<name>[\w$]+(?:(?:::|\.)[\w$]+)*)",
    re.MULTILINE,
)
_ANY_LINE = re.compile(r"[^\n]*+\n|[^\n]++")
# Deeper symbols keep the path of the outer ones.
_MAX_PATH = 12


def outline_of_code(text: str, names: Sequence[CodeSymbol]) -> Outline:
    """Return the outline of source code; without given symbols, definitions are found by a regular expression."""
    symbols = sorted(names or _find_definitions(text), key=lambda symbol: (symbol.start, -symbol.end))
    outline = Outline(labels=list(_labels(symbols)))
    strengths = {start: section_strength(depth) for start, depth in _depths(symbols)}
    after_blank = False
    for match in _ANY_LINE.finditer(text):
        strength = strengths.get(match.start(), BLOCK if after_blank else LINE)
        outline.add_boundary(match.start(), strength)
        after_blank = match[0].isspace()
    return outline


def _find_definitions(text: str) -> Iterator[CodeSymbol]:
    """Yield definitions, each up to a line that is not indented deeper."""
    open_symbols: list[tuple[int, int, str]] = []
    for match in _DEFINITION.finditer(text):
        indent = len(match["indent"].expandtabs(4))
        while open_symbols and open_symbols[-1][0] >= indent:
            _, start, name = open_symbols.pop()
            yield CodeSymbol(start, match.start(), name)
        open_symbols.append((indent, match.start(), match["name"]))
    for _, start, name in open_symbols:
        yield CodeSymbol(start, len(text), name)


def _depths(symbols: Sequence[CodeSymbol]) -> Iterator[tuple[int, int]]:
    """Yield the start and depth of each symbol."""
    ends: list[int] = []
    for symbol in symbols:
        while ends and ends[-1] <= symbol.start:
            ends.pop()
        ends.append(symbol.end)
        yield symbol.start, len(ends)


def _labels(symbols: Sequence[CodeSymbol]) -> Iterator[Label]:
    """Yield a label where a symbol starts, and where one ends within another."""
    yield Label(0, (), "code")
    enclosing: list[CodeSymbol] = []
    for symbol in symbols:
        while enclosing and enclosing[-1].end <= symbol.start:
            ended = enclosing.pop().end
            yield Label(ended, _path(enclosing), "code")
        enclosing.append(symbol)
        yield Label(symbol.start, _path(enclosing), "code")
    while enclosing:
        ended = enclosing.pop().end
        yield Label(ended, _path(enclosing), "code")


def _path(enclosing: Sequence[CodeSymbol]) -> tuple[str, ...]:
    return tuple(outer.name for outer in enclosing[:_MAX_PATH])
