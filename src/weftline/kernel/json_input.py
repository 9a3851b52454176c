"""Validation of free-form JSON in requests."""

from __future__ import annotations

import re
from difflib import get_close_matches
from enum import Enum
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from weftline.kernel.errors import InvalidInput, invalid_cursor
from weftline.kernel.fields import PATTERN_FORMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


METADATA_BYTES = 65_536
NO_METADATA = "{}"
JSON_MEDIA_TYPE = "application/json"
# Some JSON parsers reject deep nesting; one such value would break every list that contains it.
_MAX_DEPTH = 32
_CONTAINERS = {dict, list, tuple}
_JSON_KINDS = {type(None), bool, int, float, str, *_CONTAINERS}
_encode = msgspec.json.Encoder().encode

# Text, or any other JSON. Integers stay integers, whatever their size.
TextOrJson = str | int | float | bool | list[Any] | dict[str, Any] | None
StoredValue = Annotated[Any, msgspec.Meta(description="Text, or the JSON that was written.")]
Metadata = Annotated[dict[str, Any] | None, msgspec.Meta(description="Free-form JSON.")]


def encode_json_field(name: str, value: object) -> bytes:
    """Return the JSON text of a field, or raise InvalidInput if some clients could not parse it."""
    _check(name, value)
    try:
        return _encode(value)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name}: not valid text (it holds half of a surrogate pair)", field=name) from error
    except ValueError as error:
        raise InvalidInput(f"{name}: a number with too many digits", field=name) from error


def checked_metadata(metadata: dict[str, Any] | None) -> dict[str, Any]:
    metadata_json(metadata)
    return metadata or {}


def metadata_json(metadata: dict[str, Any] | None) -> str:
    """Return the JSON text of metadata, checked against its size limit."""
    if not metadata:
        return NO_METADATA
    encoded = encode_json_field("metadata", metadata)
    if len(encoded) > METADATA_BYTES:
        raise InvalidInput(f"metadata: at most {METADATA_BYTES} bytes of JSON", field="metadata")
    return encoded.decode()


def raw_json(text: str) -> Any:  # noqa: ANN401 - encoded as the JSON it holds
    """Return JSON text as part of an answer, without decoding it."""
    return msgspec.Raw(text.encode())


def stored_value(text: str | None, media_type: str | None) -> Any:  # noqa: ANN401 - text, or the JSON it is
    """Return a stored value as part of an answer. ``media_type``: that of JSON; None for text."""
    return text if text is None or media_type is None else raw_json(text)


def is_json(text: str) -> bool:
    """Tell whether a text is JSON that all clients can parse."""
    try:
        _check("", msgspec.json.decode(text))
    except (msgspec.DecodeError, InvalidInput, RecursionError):
        return False
    return True


def _check(name: str, value: object) -> None:
    """Reject values that are not JSON or are nested too deeply.

    Checked level by level: a megabyte can hold half a million values, too many for a function call each.
    """
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        kinds = set(map(type, level))
        if not kinds <= _JSON_KINDS:
            raise InvalidInput(f"{name}: not JSON", field=name)
        if float in kinds and not all(isfinite(number) for number in level if type(number) is float):
            raise InvalidInput(f"{name}: JSON has no infinity and no NaN", field=name)
        level = _inside(name, level) if kinds & _CONTAINERS else []
        if not level:
            return
    raise InvalidInput(f"{name}: at most {_MAX_DEPTH} levels of nesting", field=name)


def _inside(name: str, level: list[Any]) -> list[Any]:
    objects = [value for value in level if type(value) is dict]
    if not set(map(type, chain.from_iterable(objects))) <= {str}:
        raise InvalidInput(f"{name}: the names in a JSON object are text", field=name)
    lists = (value for value in level if type(value) in {list, tuple})
    return [*chain.from_iterable(each.values() for each in objects), *chain.from_iterable(lists)]


# Errors of requests that do not match their schema: the field, the reason and the expected form.

# msgspec may quote the value, which can be megabytes.
_MAX_QUOTED = 300
_NAMED = re.compile(r"(?:missing required|unknown) field `([^`]*)`")
_STEPS = re.compile(r"(?:^|\.)(\w+)")
_PATTERN = re.compile(r"`str` matching regex '?(.*?)'?\Z", re.DOTALL)


def invalid_input(request: type, tool: str, problem: str, raw: Mapping[str, Any]) -> InvalidInput:
    """Return the error of a request that does not match its type."""
    what, _, where = problem.partition(" - at ")
    # Of a key of an object it says "`key` in" before the path.
    path = where.rpartition("` in `")[2].strip("`").removeprefix("$").removeprefix(".")
    named = _NAMED.search(what)
    name = path or (named[1][:100] if named else "")
    # Of a field that is missing in an object, the hint describes the field.
    missing = f"{path}.{named[1]}" if path and named and "missing" in what else name
    hint = _hint_of(request, missing)
    described = next(_descriptions(hint), None)
    if described is not None and described.startswith(f"next_{name} of") and what.startswith("Expected `str` "):
        return invalid_cursor(name)
    context: dict[str, Any] = {"operation": tool, "field": name or None}
    what = _with_form(what[:_MAX_QUOTED], hint)
    choices = list(_choices(hint))
    if "enum value" in what and choices:
        what += f"; use one of {', '.join(choices)}"
        context["accepted_values"] = choices
    if "unknown field" in what:
        context["accepted_fields"] = accepted = _fields_at(request, path)
        described = f"use only {', '.join(accepted)}."
        near = _similar(named[1], accepted) if named else None
        what += f"; did you mean `{near}`?" if near else ""
        if "written_by" in raw:
            what += ". Weftline sets written_by from your credential"
    return InvalidInput(
        f"{path}: {what}" if path else what, hint=f"{missing}: {described}" if described else None, **context
    )


def _fields_at(request: type, path: str) -> list[str]:
    """Return the names of the fields that the object at a path may have."""
    hint = _hint_of(request, path) if path else request
    return [name for kind in _structs(hint) for name in kind.__struct_fields__]


def _similar(name: str, accepted: list[str]) -> str | None:
    """Return the field that a name is probably meant for: one with it as a word, or with few other letters.

    Not itself: another form of the same object may have a field of this name.
    """
    others = [field for field in accepted if field != name]
    found = [field for field in others if name in field.split("_")] or get_close_matches(name, others, 1, 0.7)
    return found[0] if found else None


def _with_form(what: str, hint: Any) -> str:  # noqa: ANN401 - any annotation
    """Replace a regular expression with a description of the text that matches it."""
    found = _PATTERN.search(what)
    if found is None:
        return what
    meta = next((meta for meta in _metas(hint) if meta.pattern), None)
    # msgspec quotes the pattern with its backslashes doubled, so that one is only shown, never compiled.
    pattern = found[1] if meta is None else str(meta.pattern)
    form = PATTERN_FORMS.get(pattern, f"text that matches {pattern.replace(chr(92) + 'Z', '$')}")
    if meta is not None and meta.max_length is not None:
        form += f", at most {meta.max_length} characters"
    return what[: found.start()] + form


def _hint_of(request: type, path: str) -> Any:  # noqa: ANN401 - any annotation
    """Return the annotation of the field at a path, or of its nearest known parent."""
    hint: Any = request
    for name in _STEPS.findall(path):
        inner = next((hints[name] for hints in map(_fields, _structs(hint)) if name in hints), None)
        if inner is None:
            break
        hint = inner
    return None if hint is request else hint


def _fields(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _structs(hint: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - any annotation
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in get_args(hint):
        yield from _structs(inner)


def _descriptions(hint: Any) -> Iterator[str]:  # noqa: ANN401 - any annotation
    return (meta.description for meta in _metas(hint) if meta.description)


def _metas(hint: Any) -> Iterator[msgspec.Meta]:  # noqa: ANN401 - any annotation
    """Yield the constraints of an annotation, outermost first."""
    for part in reversed(getattr(hint, "__metadata__", ())):
        if isinstance(part, msgspec.Meta):
            yield part
    for inner in get_args(hint):
        yield from _metas(inner)


def _choices(hint: Any) -> Iterator[str]:  # noqa: ANN401 - any annotation
    if get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
        return
    if isinstance(hint, type) and issubclass(hint, Enum):
        yield from (str(each.value) for each in hint)
    for inner in get_args(hint):
        yield from _choices(inner)
