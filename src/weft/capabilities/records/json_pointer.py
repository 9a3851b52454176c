"""Reads values of a JSON document: by JSON Pointer (RFC 6901), or all of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

# Not None, which is a JSON value.
ABSENT: Final = object()
# Maximum depth to walk: encoding the value at every level takes time proportional to the depth.
_MAX_WALK_DEPTH = 64
_INDEX = re.compile(r"(0|[1-9][0-9]{0,15})\Z")


def value_at(document: str, pointer: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value at a pointer; ABSENT if there is none or the document is not JSON."""
    value = read_json(document)
    for token in pointer_tokens(pointer):
        value = _member(value, token)
    return value


def walk_values(document: str) -> Iterator[tuple[str, Any]]:
    """Yield every value of a document with its pointer, outer values first."""
    stack = [("", read_json(document), 0)]
    while stack:
        pointer, value, depth = stack.pop()
        if value is not ABSENT:
            yield pointer, value
        if depth < _MAX_WALK_DEPTH:
            stack += [(f"{pointer}/{_escaped(name)}", member, depth + 1) for name, member in reversed(_members(value))]


def value_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the canonical text of a value: a string as it is, anything else as JSON with sorted keys."""
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def pointer_tokens(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def read_json(document: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(document)
    except (ValueError, RecursionError):
        return ABSENT


def _members(value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return list(value.items())
    return [(str(place), member) for place, member in enumerate(value)] if isinstance(value, list) else []


def _member(value: Any, token: str) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return value.get(token, ABSENT)
    if isinstance(value, list) and _INDEX.match(token) and int(token) < len(value):
        return value[int(token)]
    return ABSENT


def _escaped(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")
