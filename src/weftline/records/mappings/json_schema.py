"""JSON Schema: the keywords of a schema that Agent Context records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.records.mappings.natives import build_part
from weftline.records.refs import JsonSchemaMapping

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

_KEYWORDS = ("$id", "$schema", "$ref", "type", "properties", "required", "additionalProperties")


def mapping_of(schema: Object[str, Any]) -> JsonSchemaMapping:
    """Return the mapping of a schema; other keywords can be found by its ``$id``."""
    return build_part(JsonSchemaMapping, **{name: schema.get(name) for name in _KEYWORDS})


def schema_of(mapping: JsonSchemaMapping) -> dict[str, Any]:
    """Return the recorded keywords of a schema."""
    schema: dict[str, Any] = msgspec.to_builtins(mapping)
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in schema.items() if name in _KEYWORDS
    }
