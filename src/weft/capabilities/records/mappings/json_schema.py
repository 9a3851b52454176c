"""JSON Schema: which schema something follows, by the names that Agent Context keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.capabilities.records.mappings.natives import fitting
from weft.capabilities.records.refs import JsonSchemaMapping

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

_KEPT = ("$id", "$schema", "$ref", "type", "properties", "required", "additionalProperties")


def mapping_of(schema: Object[str, Any]) -> JsonSchemaMapping:
    """Return what is kept of a schema; what else it demands is found by its ``$id``."""
    return fitting(JsonSchemaMapping, **{name: schema.get(name) for name in _KEPT})


def schema_of(mapping: JsonSchemaMapping) -> dict[str, Any]:
    """Return that part of a schema which a mapping keeps."""
    told: dict[str, Any] = msgspec.to_builtins(mapping)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items() if name in _KEPT}
