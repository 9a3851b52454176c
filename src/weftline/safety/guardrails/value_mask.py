"""What a rule with the response redact masks: secrets, personal data, and texts that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from weftline.safety.redaction.masker import ALL_CATEGORIES, Masker

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLACEHOLDER = "[MASKED]"
# Fields that name what a call is about; a placeholder would address something else.
_REFERENCES = ("_id", "_ids")


def mask_value(value: Any, masks: Sequence[str]) -> Any:  # noqa: ANN401 - a request, a response or JSON
    """Return a value with what the masks name replaced by placeholders; references to items stay."""
    masker = Masker([category for category in ALL_CATEGORIES if category in masks])
    texts = sorted((mask for mask in masks if mask not in ALL_CATEGORIES), key=len, reverse=True)
    return _masked(value, masker, texts, "")


def _masked(value: Any, masker: Masker, texts: Sequence[str], key: str) -> Any:  # noqa: ANN401 - likewise
    """Return the same object if there is nothing to mask in it."""
    masked = value
    if isinstance(value, msgspec.Struct):
        return _masked_struct(value, masker, texts)
    if isinstance(value, dict):
        masked = {_text(str(name), texts): _masked(inner, masker, texts, str(name)) for name, inner in value.items()}
    elif type(value) in {list, tuple}:
        masked = type(value)(_masked(inner, masker, texts, key) for inner in value)
    elif isinstance(value, msgspec.Raw):
        decoded = msgspec.json.decode(value)
        inner = _masked(decoded, masker, texts, key)
        return value if inner is decoded else msgspec.Raw(msgspec.json.encode(inner))
    elif type(value) is str:
        masked = _text(masker.value(value, key), texts)
    elif type(value) is int:
        masked = masker.value(value, key)
    return value if masked == value else masked


def _masked_struct(value: msgspec.Struct, masker: Masker, texts: Sequence[str]) -> msgspec.Struct:
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        inner = getattr(value, name)
        masked = inner if name.endswith(_REFERENCES) else _masked(inner, masker, texts, name)
        if masked is not inner:
            changes[name] = masked
    return structs.replace(value, **changes) if changes else value


def _text(text: str, texts: Sequence[str]) -> str:
    for each in texts:
        text = text.replace(each, _PLACEHOLDER)
    return text
