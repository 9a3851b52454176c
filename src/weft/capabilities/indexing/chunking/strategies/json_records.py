"""JSON and JSON lines: records stay whole if they fit, and each piece knows the path of fields to it."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from weft.capabilities.indexing.chunking.boundaries import BLOCK, LINE, Label, Outline
from weft.capabilities.indexing.chunking.strategies.plain import outline_of_plain
from weft.capabilities.indexing.chunking.strategies.transcript import outline_of_turns
from weft.capabilities.indexing.chunking.timestamps import microseconds

_SPEAKER_FIELDS = ("speaker", "role", "author", "sender", "name", "user", "from")
_TEXT_FIELDS = ("text", "content", "message", "utterance", "body")
_TIME_FIELDS = ("time", "timestamp", "ts", "created_at", "date", "start")
_GAP = re.compile(r"[\s,:]*")
_LINE = re.compile(r"[^\n]+")
# What is longer is looked into for places; smaller values stay whole anyway.
_LOOKED_INTO = 400
_DEEPEST = 8
_LONGEST_FIELD = 80
_raw_decode = json.JSONDecoder().raw_decode


def outline_of_json(text: str) -> Outline:
    outline = Outline()
    try:
        _Walk(text, outline).value(_GAP.match(text, 0).end(), (), 0)  # type: ignore[union-attr]
    except (ValueError, IndexError, RecursionError):
        # Damaged or nested beyond reason: it is still text.
        return outline_of_plain(text)
    return outline


def outline_of_json_lines(text: str) -> Outline:
    lines = [match.start() for match in _LINE.finditer(text)]
    turns = _turns(text)
    if turns is not None:
        return outline_of_turns(text, turns)
    outline = Outline(labels=[Label(0, kind="record")])
    for start in lines:
        outline.place(start, LINE)
    return outline


class _Walk:
    """Finds where the members of JSON values stand, by decoding them one by one."""

    def __init__(self, text: str, outline: Outline) -> None:
        self._text = text
        self._outline = outline

    def value(self, start: int, path: tuple[str, ...], depth: int) -> None:
        """Add the places within a value."""
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
            self._member(begin, at, end, (*path, str(key)[:_LONGEST_FIELD]), depth)
            at, number = self._skip(end), number + 1

    def _member(self, begin: int, start: int, end: int, path: tuple[str, ...], depth: int) -> None:
        self._outline.place(begin, LINE if depth else BLOCK)
        self._outline.labels.append(Label(begin, path, "record"))
        if end - start > _LOOKED_INTO and depth < _DEEPEST:
            self.value(start, path, depth + 1)

    def _skip(self, at: int) -> int:
        gap = _GAP.match(self._text, at)
        return gap.end() if gap else at


def _turns(text: str) -> list[Label] | None:
    """Return the turns of a conversation in JSON lines; None if the lines are something else."""
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
    return Label(start, (), "turns", speaker[:_LONGEST_FIELD], microseconds(_first(record, _TIME_FIELDS)))


def _first(record: dict[str, Any], names: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON of any shape
    return next((record[name] for name in names if name in record), None)
