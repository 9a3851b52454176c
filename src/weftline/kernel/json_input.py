"""Validation of free-form JSON in requests."""

from __future__ import annotations

from itertools import chain
from math import isfinite
from typing import Annotated, Any

import msgspec

from weftline.kernel.errors import InvalidInput

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
