"""Checking records that come from elsewhere: what is wrong with them, where, and in plain words."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from weft.capabilities.records.model import RECORD_TYPES, Record
from weft.capabilities.records.refs import MOMENT
from weft.capabilities.records.validation_errors import Misfit, misfit

if TYPE_CHECKING:
    from collections.abc import Iterator

# Some readers give up on JSON that is nested deeply. A value may have 32 levels, and records hold values.
MOST_LEVELS = 64
# Told by the first of these that it has: an event may name a context, an injection names its assembly.
ID_FIELDS = (
    "event_id",
    "missing_id",
    "summary_id",
    "compaction_id",
    "injection_id",
    "assembly_id",
    "window_id",
    "budget_id",
    "selection_id",
    "surface_id",
    "source_id",
    "item_id",
    "context_id",
)
_BY_ID = {kind.id_field: kind for kind in RECORD_TYPES.values()}
_WRAPPED = {"type", "record"}
_NO_RECORD = "holds no record"
_NOT_OBJECT = "a record is an object"
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKETS = bytes.maketrans(b"{}[]", b"()()")
_BUT_BRACKETS = bytes(code for code in range(256) if code not in b"{}[]")
_NOT_A_NUMBER = re.compile(rb"NaN|-?Infinity")
_BYTE = re.compile(r" \(byte (\d+)\)\Z")
_MOMENT = re.compile(MOMENT)
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Problem(NamedTuple):
    """What is wrong in a document: the line it is found at or, in a record of several lines, where that begins."""

    line: int
    path: str
    reason: str


class ValidationReport(NamedTuple):
    """How many records a document holds, and everything that is wrong with them."""

    records: int
    problems: list[Problem]


class _Piece(NamedTuple):
    """A part of a document that should be a record, and where it is."""

    line: int
    path: str
    raw: bytes


def check_document(document: bytes) -> ValidationReport:
    """Check one record, a JSON array of records or one record a line; each bare, or as ``{"type", "record"}``."""
    problems: list[Problem] = []
    records = 0
    try:
        for piece in _pieces(document):
            records += 1
            problems += _problems_of(piece)
    except Misfit as found:
        problems.append(Problem(_line(document, found.offset), found.path, found.reason))
    return ValidationReport(records, problems)


def check_record(raw: bytes, record_type: str | None = None) -> Record:
    """Return the record that JSON holds, or raise ``Misfit``. Without a type it is told by the record's id."""
    told = _sound(raw)
    if record_type is None and isinstance(told, dict) and told.keys() == _WRAPPED:
        return _unwrapped(told)
    return record_of(told, record_type)


def record_of(told: Any, record_type: str | None = None) -> Record:  # noqa: ANN401 - any JSON
    """Return the record that parsed JSON is, or raise ``Misfit``."""
    if not isinstance(told, dict):
        raise Misfit("$", _NOT_OBJECT)
    kind = _kind_of(told) if record_type is None else _kind_named(record_type)
    try:
        record = msgspec.convert(told, kind)
    except msgspec.ValidationError as error:
        raise misfit(kind, str(error)) from None
    for path, written in _moments(record, told, "$"):
        if not _MOMENT.match(written):
            raise Misfit(path, "is not a time as in 2026-05-08T12:30:00Z")
    return record


def _problems_of(piece: _Piece) -> Iterator[Problem]:
    try:
        check_record(piece.raw)
    except Misfit as found:
        line = piece.line + piece.raw[: found.offset].count(b"\n")
        yield Problem(line, piece.path + found.path.removeprefix("$"), found.reason)


def _pieces(document: bytes) -> Iterator[_Piece]:
    """Take a document apart into what should be records."""
    _check_text(document)
    first, _, others = document.lstrip().partition(b"\n")
    if first.startswith(b"["):
        yield from _array(document)
    elif others.strip() and (first.rstrip().endswith(b"}") or others.lstrip().startswith(b"{")):
        yield from (_Piece(number, "$", line) for number, line in enumerate(document.split(b"\n"), 1) if line.strip())
    else:
        yield _Piece(1, "$", document)


def _array(document: bytes) -> Iterator[_Piece]:
    found = _parsed(document, _elements)
    if not found:
        raise Misfit("$", _NO_RECORD)
    line, behind = 1, 0
    for number, element in enumerate(map(bytes, found)):
        at = document.index(element, behind)
        line += document.count(b"\n", behind, at)
        yield _Piece(line, f"$[{number}]", element)
        line += element.count(b"\n")
        behind = at + len(element)


def _check_text(document: bytes) -> None:
    if document.startswith(b"\xef\xbb\xbf"):
        raise Misfit("$", "begins with a byte order mark, which JSON has no place for")
    try:
        document.decode()
    except UnicodeDecodeError as error:
        raise Misfit("$", f"is not UTF-8 text (byte {error.start + 1})", error.start) from None
    if not document.strip():
        raise Misfit("$", f"is empty: it {_NO_RECORD}")


def _sound(raw: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Return what JSON says, unless readers could differ about it."""
    told = _parsed(raw, msgspec.json.decode)
    if raw.count(b"{") + raw.count(b"[") > MOST_LEVELS and _levels(raw) > MOST_LEVELS:
        raise Misfit("$", f"is nested more than {MOST_LEVELS} levels deep")
    # A name that is said twice is told once. Quicker than looking at each: fewer names leave fewer colons,
    # unless the text hides some.
    if b"\\u003" in raw or raw.count(b":") != _encode(told).count(b":"):
        _check_doubled(raw)
    return told


def _parsed(raw: bytes, parse: Any) -> Any:  # noqa: ANN401 - any JSON
    try:
        return parse(raw)
    except RecursionError:
        raise Misfit("$", f"is nested more than {MOST_LEVELS} levels deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(raw, str(error)) from None


def _malformed(raw: bytes, problem: str) -> Misfit:
    found = _BYTE.search(problem)
    if found is None:
        what = "it ends too early" if "truncated" in problem else problem.partition(" - at ")[0]
        return Misfit("$", f"is not JSON: {what}")
    at = int(found[1])
    if _NOT_A_NUMBER.match(raw, at) or _NOT_A_NUMBER.match(raw, max(at - 1, 0)):
        return Misfit("$", "is not JSON, which has no NaN and no infinity", at)
    what, column = problem[: found.start()].partition(": ")[2], at - raw.rfind(b"\n", 0, at)
    return Misfit("$", f"is not JSON: {what} (column {column})", at)


def _levels(raw: bytes) -> int:
    """Return how deep JSON is nested: how often all pairs of brackets with nothing between them can be taken away."""
    brackets = _STRINGS.sub(b"", raw).translate(_BRACKETS, _BUT_BRACKETS)
    levels = 0
    while brackets and levels <= MOST_LEVELS:
        brackets = brackets.replace(b"()", b"")
        levels += 1
    return levels


def _check_doubled(raw: bytes) -> None:
    """Refuse an object that says the same name twice: readers differ in which they take."""

    def doubled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = Counter(name for name, _ in pairs)
        twice = [name for name, uses in names.items() if uses > 1]
        return {**dict(pairs), _Doubled: twice[0]} if twice else dict(pairs)  # type: ignore[dict-item]

    found = next(_doubled_in(json.loads(raw, object_pairs_hook=doubled), "$"), None)
    if found is not None:
        raise Misfit(found, "is said twice")


class _Doubled:
    """A name that no JSON has: it leads to the one that was said twice."""


def _doubled_in(told: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(told, dict):
        if _Doubled in told:
            yield f"{path}.{told.pop(_Doubled)}"
        for name, inner in told.items():
            yield from _doubled_in(inner, f"{path}.{name}")
    elif isinstance(told, list):
        for number, inner in enumerate(told):
            yield from _doubled_in(inner, f"{path}[{number}]")


def _unwrapped(told: dict[str, Any]) -> Record:
    try:
        return record_of(told["record"], told["type"])
    except Misfit as found:
        if found.path == "$.type":
            raise
        raise Misfit(f"$.record{found.path.removeprefix('$')}", found.reason) from None


def _kind_of(told: dict[str, Any]) -> type[Record]:
    for name in ID_FIELDS:
        if name in told:
            return _BY_ID[name]
    raise Misfit("$", f"is none of the record types: it has none of {', '.join(ID_FIELDS)}")


def _kind_named(record_type: Any) -> type[Record]:  # noqa: ANN401 - any JSON
    kind = RECORD_TYPES.get(record_type) if isinstance(record_type, str) else None
    if kind is None:
        raise Misfit("$.type", f"{str(record_type)[:100]!r} is not one of {', '.join(RECORD_TYPES)}")
    return kind


def _moments(part: msgspec.Struct, told: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield where a record tells a time, and how that is written."""
    for name, written in _telling_time(type(part)):
        value = getattr(part, name)
        if isinstance(value, datetime):
            yield f"{path}.{written}", told[written]
        elif isinstance(value, msgspec.Struct):
            yield from _moments(value, told[written], f"{path}.{written}")
        elif isinstance(value, tuple):
            for number, inner in enumerate(value):
                if isinstance(inner, msgspec.Struct):
                    yield from _moments(inner, told[written][number], f"{path}.{written}[{number}]")


@cache
def _telling_time(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Return the fields of a part that may tell times, by their names here and on the wire."""
    return [(field.name, field.encode_name) for field in msgspec.structs.fields(kind) if _may_tell_time(field.type)]


def _may_tell_time(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return bool(_telling_time(hint))
    return hint is datetime or any(map(_may_tell_time, get_args(hint)))


def _line(document: bytes, offset: int) -> int:
    return document.count(b"\n", 0, offset) + 1
