"""Saying in plain words why something is not the record it should be."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from weft.capabilities.records.schemas import published_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from weft.capabilities.records.model import Record

_QUOTED_AT_MOST = 200
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
_A_TIME = "is not a time as in 2026-05-08T12:30:00Z"


class Misfit(ValueError):
    """Why something is no record: where in it, in words, and behind how many bytes if it cannot even be read."""

    def __init__(self, path: str, reason: str, offset: int = 0) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.offset = offset


def misfit(kind: type[Record], problem: str) -> Misfit:
    """Say in words what msgspec found wrong with a record of a type."""
    what, _, where = problem.rpartition(" - at `")
    what, path = (what, where.rstrip("`")) if what else (where, "$")
    for pattern, put in _WORDS.items():
        found = re.fullmatch(pattern, what, re.DOTALL)
        if found is not None:
            return put(kind, path, *(group[:_QUOTED_AT_MOST] for group in found.groups()))
    return Misfit(path, what)


def _missing(_: type[Record], path: str, name: str) -> Misfit:
    return Misfit(f"{path}.{name}", "is required")


def _unknown(kind: type[Record], path: str, name: str) -> Misfit:
    known = [field for place in _definitions(kind, path) for field in place.get("properties", ())]
    near = get_close_matches(name, known, 1)
    return Misfit(f"{path}.{name}", f"is no field here{f'; did you mean `{near[0]}`?' if near else ''}")


def _choice(kind: type[Record], path: str, value: str) -> Misfit:
    choices = dict.fromkeys(choice for place in _definitions(kind, path) for choice in place.get("enum", ()))
    return Misfit(path, f"{value} is not one of {', '.join(choices)}")


def _kind(_: type[Record], path: str, expected: str, got: str) -> Misfit:
    if got == "null":
        return Misfit(path, "is null: leave out what is not said")
    wanted = " or ".join(dict.fromkeys(_KINDS.get(name, name) for name in expected.split(" | ")))
    return Misfit(path, f"is {_KINDS.get(got, got)}, not {wanted}")


def _form(kind: type[Record], path: str) -> Misfit:
    patterns = dict.fromkeys(place["pattern"] for place in _definitions(kind, path) if "pattern" in place)
    return Misfit(path, f"is not of the form {' or '.join(patterns)}")


def _length(_: type[Record], path: str, what: str, bound: str, length: str) -> Misfit:
    things = "character" if what == "str" else "entry"
    many = things if length == "1" else {"character": "characters", "entry": "entries"}[things]
    return Misfit(path, f"has {'fewer' if bound == '>=' else 'more'} than {length} {many}")


def _range(_: type[Record], path: str, bound: str, limit: str) -> Misfit:
    return Misfit(path, f"is {'below' if bound == '>=' else 'above'} {limit.removesuffix('.0')}")


def _time(_: type[Record], path: str) -> Misfit:
    return Misfit(path, _A_TIME)


# What msgspec says, and what it means.
_WORDS: dict[str, Callable[..., Misfit]] = {
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
    """Return what the schema of a record type says of a place in it."""
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
