"""Values inside a JSON document: by JSON Pointer (RFC 6901), and all of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

# Not None, which is a value.
NOTHING: Final = object()
# How deep values are looked through: telling what each level holds takes as many times as long as there are levels.
_DEEPEST = 64
_INDEX = re.compile(r"(0|[1-9][0-9]{0,15})\Z")


def value_at(document: str, pointer: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value that a pointer means; NOTHING if there is none, or the document is no JSON."""
    value = read_json(document)
    for token in tokens_of(pointer):
        value = _member(value, token)
    return value


def values_in(document: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of a document with their pointers, from the outside to the inside."""
    waiting = [("", read_json(document), 0)]
    while waiting:
        pointer, value, depth = waiting.pop()
        if value is not NOTHING:
            yield pointer, value
        if depth < _DEEPEST:
            waiting += [
                (f"{pointer}/{_escaped(name)}", member, depth + 1) for name, member in reversed(_members(value))
            ]


def value_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return what a value says, however it was written: a text itself, anything else as JSON by order of its keys."""
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def tokens_of(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def read_json(document: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(document)
    except (ValueError, RecursionError):
        return NOTHING


def _members(value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return list(value.items())
    return [(str(place), member) for place, member in enumerate(value)] if isinstance(value, list) else []


def _member(value: Any, token: str) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return value.get(token, NOTHING)
    if isinstance(value, list) and _INDEX.match(token) and int(token) < len(value):
        return value[int(token)]
    return NOTHING


def _escaped(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")
