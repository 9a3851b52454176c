"""Records: JSON, JSON lines, CSV and logs. A record stays whole if it fits; chunks have field paths or columns."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.indexing.chunking.model import BLOCK, LINE, Label, Outline
from weftline.indexing.chunking.strategies.plain import outline_of_plain
from weftline.indexing.chunking.strategies.transcript import ISO_TIME, microseconds, outline_of_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_MIN_SHARE = 0.3
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
    turns = _turns(text)
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


def _turns(text: str) -> list[Label] | None:
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
    return records >= _MIN_RECORDS and records >= _MIN_SHARE * len(lines)


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
