"""Translates msgspec errors about records into readable reasons."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from weftline.records.schemas import published_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from weftline.records.model import Record

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
