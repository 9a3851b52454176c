"""JSON that callers bring along for themselves: checked before it is kept."""

from __future__ import annotations

from itertools import chain
from math import isfinite
from typing import Annotated, Any

import msgspec

from weft.kernel.errors import InvalidInput

METADATA_BYTES = 65_536
NO_METADATA = "{}"
# Some clients and libraries give up on deeply nested JSON, and one such value would spoil every list it is in.
_MOST_LEVELS = 32
_CONTAINERS = {dict, list, tuple}
_JSON_KINDS = {type(None), bool, int, float, str, *_CONTAINERS}
_encode = msgspec.json.Encoder().encode

Metadata = Annotated[dict[str, Any] | None, msgspec.Meta(description="Anything of yours, as JSON.")]


def encode_given(name: str, value: object) -> bytes:
    """Return the JSON text of a field's value, if it is one that every client can take back."""
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
    """Return the JSON text of metadata, if it is not too much."""
    if not metadata:
        return NO_METADATA
    encoded = encode_given("metadata", metadata)
    if len(encoded) > METADATA_BYTES:
        raise InvalidInput(f"metadata: at most {METADATA_BYTES} bytes of JSON", field="metadata")
    return encoded.decode()


def passed_on(text: str) -> Any:  # noqa: ANN401 - stands for the JSON it is
    """Return JSON as part of an answer that is only passed on, and so not taken apart."""
    return msgspec.Raw(text.encode())


def _check(name: str, value: object) -> None:
    """Refuse what JSON has no words for, and what is nested too deeply.

    A level at a time, because a megabyte may hold half a million values.
    """
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):
        kinds = set(map(type, level))
        if not kinds <= _JSON_KINDS:
            raise InvalidInput(f"{name}: not JSON", field=name)
        if float in kinds and not all(isfinite(number) for number in level if type(number) is float):
            raise InvalidInput(f"{name}: JSON has no infinity and no NaN", field=name)
        level = _inside(name, level) if kinds & _CONTAINERS else []
        if not level:
            return
    raise InvalidInput(f"{name}: at most {_MOST_LEVELS} levels of nesting", field=name)


def _inside(name: str, level: list[Any]) -> list[Any]:
    objects = [value for value in level if type(value) is dict]
    if not set(map(type, chain.from_iterable(objects))) <= {str}:
        raise InvalidInput(f"{name}: the names in a JSON object are text", field=name)
    lists = (value for value in level if type(value) in {list, tuple})
    return [*chain.from_iterable(each.values() for each in objects), *chain.from_iterable(lists)]
