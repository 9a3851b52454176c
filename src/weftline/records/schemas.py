"""JSON Schemas of the record types: generated from structs and constraints, shipped as files of the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.kernel.schema import standalone
from weftline.records.field_docs import describe_field
from weftline.records.model import RECORD_TYPES
from weftline.records.refs import RecordPart
from weftline.records.vocabulary import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.records.model import Record

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Directory of the published schemas, in the package and on the server.
SCHEMAS = "schemas"
MEDIA_TYPE = "application/schema+json"


def all_schemas() -> dict[str, dict[str, Any]]:
    """Generate the schema of every record type."""
    return {name: schema_of(kind) for name, kind in RECORD_TYPES.items()}


def schema_of(kind: type[Record]) -> dict[str, Any]:
    """Generate the self-contained schema of a record type."""
    structs = {part.__name__: part for part in _subclasses(RecordPart)}
    made = _without_discriminators(standalone(kind))
    parts = {name: _with_constraints(structs[name], part) for name, part in made.pop("$defs").items()}
    named = {"$schema": DIALECT, "$id": schema_id(kind.type), **_with_constraints(kind, made)}
    return {**named, "title": f"Agent Context {SCHEMA_VERSION}: {kind.type}", "$defs": parts}


def schema_id(record_type: str) -> str:
    return f"urn:weftline:agent-context:{SCHEMA_VERSION}:{record_type}"


def schema_path(record_type: str) -> str:
    """Return the path of a schema below ``schemas``; each Agent Context version has its own directory."""
    return f"agent-context/{SCHEMA_VERSION}/{record_type}.schema.json"


def schema_url(record_type: str) -> str:
    """Return the path at which a server publishes a schema."""
    return f"/{SCHEMAS}/{schema_path(record_type)}"


@cache
def schema_file(record_type: str) -> bytes:
    """Return the published schema of a record type."""
    return files("weftline").joinpath(SCHEMAS, *schema_path(record_type).split("/")).read_bytes()


@cache
def published_schema(record_type: str) -> dict[str, Any]:
    """Return the published schema of a record type. The result is cached: do not modify it."""
    return msgspec.json.decode(schema_file(record_type), type=dict[str, Any])


def _with_constraints(kind: type[RecordPart], schema: dict[str, Any]) -> dict[str, Any]:
    """Add field descriptions and constraints to the schema of a struct."""
    fields = {
        name: {**field, "description": describe_field(kind.__name__, name)}
        for name, field in schema["properties"].items()
    }
    constraints = [constraint.schema(fields) for constraint in kind.constraints]
    return {**schema, "properties": fields, **({"allOf": constraints} if constraints else {})}


def _without_discriminators(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON Schema
    """Remove OpenAPI discriminators; the tag field, an enum of one value, has the same effect in JSON Schema."""
    if isinstance(schema, dict):
        kept = {key: _without_discriminators(value) for key, value in schema.items()}
        if "anyOf" in kept:
            kept.pop("discriminator", None)
        return kept
    return [_without_discriminators(each) for each in schema] if isinstance(schema, list) else schema


def _subclasses(kind: type[RecordPart]) -> Iterator[type[RecordPart]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)
