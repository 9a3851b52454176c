"""Validates records in JSON, and reports each problem with its line, path and reason."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from weftline.records.model import RECORD_TYPES, Record
from weftline.records.refs import TIME_PATTERN
from weftline.records.schemas import published_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


# Translates msgspec errors about records into readable reasons.

_MAX_QUOTED = 200
_STEPS = re.compile(r"\.[^.\[]+|\[[^\]]*\]")
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "datetime": "a time",
}
_NOT_A_TIME = "is not a time like 2026-05-08T12:30:00Z"


class InvalidRecord(ValueError):
    """JSON that is not a valid record: the path, the reason, and the byte offset if it cannot be parsed."""

    def __init__(self, path: str, reason: str, offset: int = 0) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.offset = offset


def explain_error(kind: type[Record], problem: str) -> InvalidRecord:
    """Translate an error message of msgspec about a record type."""
    what, _, where = problem.rpartition(" - at `")
    what, path = (what, where.rstrip("`")) if what else (where, "$")
    for pattern, translate in _TRANSLATIONS.items():
        found = re.fullmatch(pattern, what, re.DOTALL)
        if found is not None:
            return translate(kind, path, *(group[:_MAX_QUOTED] for group in found.groups()))
    return InvalidRecord(path, what)


def _missing(_: type[Record], path: str, name: str) -> InvalidRecord:
    return InvalidRecord(f"{path}.{name}", "is required")


def _unknown(kind: type[Record], path: str, name: str) -> InvalidRecord:
    known = [field for place in _definitions(kind, path) for field in place.get("properties", ()) if field != name]
    near = get_close_matches(name, known, 1)
    return InvalidRecord(f"{path}.{name}", f"is not a known field{f'; did you mean `{near[0]}`?' if near else ''}")


def _choice(kind: type[Record], path: str, value: str) -> InvalidRecord:
    choices = dict.fromkeys(choice for place in _definitions(kind, path) for choice in place.get("enum", ()))
    return InvalidRecord(path, f"{value} is not one of {', '.join(choices)}")


def _kind(_: type[Record], path: str, expected: str, got: str) -> InvalidRecord:
    if got == "null":
        return InvalidRecord(path, "is null: leave out absent values")
    wanted = " or ".join(dict.fromkeys(_KINDS.get(name, name) for name in expected.split(" | ")))
    return InvalidRecord(path, f"is {_KINDS.get(got, got)}, not {wanted}")


def _form(kind: type[Record], path: str) -> InvalidRecord:
    patterns = dict.fromkeys(place["pattern"] for place in _definitions(kind, path) if "pattern" in place)
    return InvalidRecord(path, f"does not match {' or '.join(patterns)}")


def _length(_: type[Record], path: str, what: str, bound: str, length: str) -> InvalidRecord:
    things = "character" if what == "str" else "entry"
    many = things if length == "1" else {"character": "characters", "entry": "entries"}[things]
    return InvalidRecord(path, f"has {'fewer' if bound == '>=' else 'more'} than {length} {many}")


def _range(_: type[Record], path: str, bound: str, limit: str) -> InvalidRecord:
    return InvalidRecord(path, f"is {'below' if bound == '>=' else 'above'} {limit.removesuffix('.0')}")


def _time(_: type[Record], path: str) -> InvalidRecord:
    return InvalidRecord(path, _NOT_A_TIME)


_TRANSLATIONS: dict[str, Callable[..., InvalidRecord]] = {
    r"Object missing required field `(.*)`": _missing,
    r"Object contains unknown field `(.*)`": _unknown,
    r"Invalid (?:enum )?value (.*)": _choice,
    r"Expected `([^`]*)`, got `([^`]*)`": _kind,
    r"Expected `str` matching regex .*": _form,
    r"Expected `(str|array)` of length (>=|<=) (\d+)": _length,
    r"Expected `(?:int|float)` (>=|<=) (.*)": _range,
    r"Expected `datetime` with a timezone component|Invalid RFC3339 encoded datetime": _time,
}


def _definitions(kind: type[Record], path: str) -> Iterable[dict[str, Any]]:
    """Return the schemas that apply at a path of a record type."""
    schema = published_schema(kind.type)
    places = list(_alternatives(schema, schema))
    for step in _STEPS.findall(path):
        inside = [inner for place in places for inner in _inside(place, step)]
        places = [place for inner in inside for place in _alternatives(inner, schema)]
    return places


def _inside(place: dict[str, Any], step: str) -> Iterator[dict[str, Any]]:
    if step.startswith("."):
        inner = place.get("properties", {}).get(step[1:])
    else:
        inner = place.get("additionalProperties" if step == "[...]" else "items")
    if isinstance(inner, dict):
        yield inner


def _alternatives(place: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in place:
        place = schema["$defs"][place["$ref"].rpartition("/")[2]]
    if "properties" not in place and "anyOf" in place:
        for inner in place["anyOf"]:
            yield from _alternatives(inner, schema)
    else:
        yield place


# Some JSON parsers reject deep nesting. A value may have 32 levels, and records contain values.
MAX_DEPTH = 64
# The first of these that is present determines the type: an event may have a context_id, an injection an assembly_id.
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
_WRAPPER_KEYS = {"type", "record"}
_NO_RECORD = "contains no record"
_NOT_OBJECT = "a record is an object"
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKETS = bytes.maketrans(b"{}[]", b"()()")
_NOT_BRACKETS = bytes(code for code in range(256) if code not in b"{}[]")
_NOT_A_NUMBER = re.compile(rb"NaN|-?Infinity")
_BYTE = re.compile(r" \(byte (\d+)\)\Z")
_TIME = re.compile(TIME_PATTERN)
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Problem(NamedTuple):
    """A problem in a document; ``line`` is where it is, or where the record begins."""

    line: int
    path: str
    reason: str


class ValidationReport(NamedTuple):
    """Number of records in a document, and all problems."""

    records: int
    problems: list[Problem]


class _Piece(NamedTuple):
    """A part of a document that should be a record."""

    line: int
    path: str
    raw: bytes


def check_document(document: bytes) -> ValidationReport:
    """Validate one record, a JSON array or NDJSON; each record bare or as ``{"type", "record"}``."""
    problems: list[Problem] = []
    records = 0
    try:
        for piece in _pieces(document):
            records += 1
            problems += _problems_of(piece)
    except InvalidRecord as found:
        problems.append(Problem(_line(document, found.offset), found.path, found.reason))
    return ValidationReport(records, problems)


def check_record(raw: bytes, record_type: str | None = None) -> Record:
    """Decode a record, or raise ``InvalidRecord``. Without a type, its id field determines the type."""
    value = _decode_strict(raw)
    if record_type is None and isinstance(value, dict) and value.keys() == _WRAPPER_KEYS:
        return _unwrapped(value)
    return parse_record(value, record_type)


def parse_record(value: Any, record_type: str | None = None) -> Record:  # noqa: ANN401 - any JSON
    """Convert decoded JSON to a record, or raise ``InvalidRecord``."""
    if not isinstance(value, dict):
        raise InvalidRecord("$", _NOT_OBJECT)
    kind = find_kind(value) if record_type is None else _kind_named(record_type)
    try:
        record = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise explain_error(kind, str(error)) from None
    for path, written in _times(record, value, "$"):
        if not _TIME.match(written):
            raise InvalidRecord(path, "is not a time like 2026-05-08T12:30:00Z")
    return record


def _problems_of(piece: _Piece) -> Iterator[Problem]:
    try:
        check_record(piece.raw)
    except InvalidRecord as found:
        line = piece.line + piece.raw[: found.offset].count(b"\n")
        yield Problem(line, piece.path + found.path.removeprefix("$"), found.reason)


def _pieces(document: bytes) -> Iterator[_Piece]:
    """Split a document into what should be records."""
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
        raise InvalidRecord("$", _NO_RECORD)
    line, offset = 1, 0
    for number, element in enumerate(map(bytes, found)):
        at = document.index(element, offset)
        line += document.count(b"\n", offset, at)
        yield _Piece(line, f"$[{number}]", element)
        line += element.count(b"\n")
        offset = at + len(element)


def _check_text(document: bytes) -> None:
    if document.startswith(b"\xef\xbb\xbf"):
        raise InvalidRecord("$", "begins with a byte order mark, which JSON does not allow")
    try:
        document.decode()
    except UnicodeDecodeError as error:
        raise InvalidRecord("$", f"is not UTF-8 text (byte {error.start + 1})", error.start) from None
    if not document.strip():
        raise InvalidRecord("$", f"is empty: it {_NO_RECORD}")


def _decode_strict(raw: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Decode JSON; reject what parsers treat differently: deep nesting and duplicate names."""
    value = _parsed(raw, msgspec.json.decode)
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _levels(raw) > MAX_DEPTH:
        raise InvalidRecord("$", f"is nested more than {MAX_DEPTH} levels deep")
    # Decoding drops duplicate names. Comparing the number of colons is faster than a second decoder, unless one is
    # escaped.
    if b"\\u003" in raw or raw.count(b":") != _encode(value).count(b":"):
        _check_duplicates(raw)
    return value


def _parsed(raw: bytes, parse: Any) -> Any:  # noqa: ANN401 - any JSON
    try:
        return parse(raw)
    except RecursionError:
        raise InvalidRecord("$", f"is nested more than {MAX_DEPTH} levels deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(raw, str(error)) from None


def _malformed(raw: bytes, problem: str) -> InvalidRecord:
    found = _BYTE.search(problem)
    if found is None:
        what = "unexpected end" if "truncated" in problem else problem.partition(" - at ")[0]
        return InvalidRecord("$", f"is not JSON: {what}")
    at = int(found[1])
    if _NOT_A_NUMBER.match(raw, at) or _NOT_A_NUMBER.match(raw, max(at - 1, 0)):
        return InvalidRecord("$", "is not JSON: NaN and Infinity are not allowed", at)
    what, column = problem[: found.start()].partition(": ")[2], at - raw.rfind(b"\n", 0, at)
    return InvalidRecord("$", f"is not JSON: {what} (column {column})", at)


def _levels(raw: bytes) -> int:
    """Return the nesting depth of JSON: how often all empty pairs of brackets can be removed."""
    brackets = _STRINGS.sub(b"", raw).translate(_BRACKETS, _NOT_BRACKETS)
    levels = 0
    while brackets and levels <= MAX_DEPTH:
        brackets = brackets.replace(b"()", b"")
        levels += 1
    return levels


def _check_duplicates(raw: bytes) -> None:
    """Reject an object with a duplicate name: parsers differ in which value they keep."""

    def mark(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = Counter(name for name, _ in pairs)
        twice = [name for name, uses in names.items() if uses > 1]
        return {**dict(pairs), _Duplicate: twice[0]} if twice else dict(pairs)  # type: ignore[dict-item]

    found = next(_duplicates_in(json.loads(raw, object_pairs_hook=mark), "$"), None)
    if found is not None:
        raise InvalidRecord(found, "is a duplicate name")


class _Duplicate:
    """Key that cannot occur in JSON: marks an object with a duplicate name."""


def _duplicates_in(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        if _Duplicate in value:
            yield f"{path}.{value.pop(_Duplicate)}"
        for name, inner in value.items():
            yield from _duplicates_in(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _duplicates_in(inner, f"{path}[{number}]")


def _unwrapped(value: dict[str, Any]) -> Record:
    try:
        return parse_record(value["record"], value["type"])
    except InvalidRecord as found:
        if found.path == "$.type":
            raise
        raise InvalidRecord(f"$.record{found.path.removeprefix('$')}", found.reason) from None


def find_kind(value: dict[str, Any]) -> type[Record]:
    """Return the type of a record by its id field, or raise ``InvalidRecord``."""
    for name in ID_FIELDS:
        if name in value:
            return _BY_ID[name]
    raise InvalidRecord("$", f"is not a record: it has none of the fields {', '.join(ID_FIELDS)}")


def _kind_named(record_type: Any) -> type[Record]:  # noqa: ANN401 - any JSON
    kind = RECORD_TYPES.get(record_type) if isinstance(record_type, str) else None
    if kind is None:
        raise InvalidRecord("$.type", f"{str(record_type)[:100]!r} is not one of {', '.join(RECORD_TYPES)}")
    return kind


def _times(part: msgspec.Struct, raw: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the JSON string of every time in a record."""
    for name, written in _time_fields(type(part)):
        value = getattr(part, name)
        if isinstance(value, datetime):
            yield f"{path}.{written}", raw[written]
        elif isinstance(value, msgspec.Struct):
            yield from _times(value, raw[written], f"{path}.{written}")
        elif isinstance(value, tuple):
            for number, inner in enumerate(value):
                if isinstance(inner, msgspec.Struct):
                    yield from _times(inner, raw[written][number], f"{path}.{written}[{number}]")


@cache
def _time_fields(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Return the fields of a struct that may contain times, with their names on the wire."""
    return [(field.name, field.encode_name) for field in msgspec.structs.fields(kind) if _may_contain_time(field.type)]


def _may_contain_time(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return bool(_time_fields(hint))
    return hint is datetime or any(map(_may_contain_time, get_args(hint)))


def _line(document: bytes, offset: int) -> int:
    return document.count(b"\n", 0, offset) + 1
