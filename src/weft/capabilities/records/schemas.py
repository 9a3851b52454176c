"""JSON Schemas of the record types: made from their structs and rules, shipped as files, found by name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from weft.capabilities.records.field_docs import meaning_of
from weft.capabilities.records.model import RECORD_TYPES
from weft.capabilities.records.refs import RecordPart
from weft.capabilities.records.vocabulary import SCHEMA_VERSION
from weft.kernel.schema import standalone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.capabilities.records.model import Record

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Where schemas are published, inside the package and below the root of a server.
SCHEMAS = "schemas"
MEDIA_TYPE = "application/schema+json"


def all_schemas() -> dict[str, dict[str, Any]]:
    """Make the schema of every record type."""
    return {name: schema_of(kind) for name, kind in RECORD_TYPES.items()}


def schema_of(kind: type[Record]) -> dict[str, Any]:
    """Make the schema of a record type, carrying everything it refers to."""
    ruled = {part.__name__: part for part in _below(RecordPart)}
    made = _without_discriminators(standalone(kind))
    parts = {name: _abiding(ruled[name], part) for name, part in made.pop("$defs").items()}
    named = {"$schema": DIALECT, "$id": schema_id(kind.type), **_abiding(kind, made)}
    return {**named, "title": f"Agent Context {SCHEMA_VERSION}: {kind.type}", "$defs": parts}


def schema_id(record_type: str) -> str:
    return f"urn:weft:agent-context:{SCHEMA_VERSION}:{record_type}"


def schema_path(record_type: str) -> str:
    """Return where a schema lies below ``schemas``; a later version of Agent Context has a folder of its own."""
    return f"agent-context/{SCHEMA_VERSION}/{record_type}.schema.json"


def schema_url(record_type: str) -> str:
    """Return where a server shows a schema."""
    return f"/{SCHEMAS}/{schema_path(record_type)}"


@cache
def schema_file(record_type: str) -> bytes:
    """Return the published schema of a record type."""
    return files("weft").joinpath(SCHEMAS, *schema_path(record_type).split("/")).read_bytes()


@cache
def published_schema(record_type: str) -> dict[str, Any]:
    """Return the published schema of a record type, to be read only."""
    return msgspec.json.decode(schema_file(record_type), type=dict[str, Any])


def _abiding(kind: type[RecordPart], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a part with what its fields mean and what its rules demand."""
    fields = {
        name: {**field, "description": meaning_of(kind.__name__, name)} for name, field in schema["properties"].items()
    }
    demands = [rule.schema(fields) for rule in kind.rules]
    return {**schema, "properties": fields, **({"allOf": demands} if demands else {})}


def _without_discriminators(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    """Leave out what OpenAPI has and JSON Schema has not; a tag is an enumeration of one, which says the same."""
    if isinstance(schema, dict):
        kept = {key: _without_discriminators(value) for key, value in schema.items()}
        if "anyOf" in kept:
            kept.pop("discriminator", None)
        return kept
    return [_without_discriminators(each) for each in schema] if isinstance(schema, list) else schema


def _below(kind: type[RecordPart]) -> Iterator[type[RecordPart]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)
