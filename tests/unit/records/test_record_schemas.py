"""The published schemas: generated from the structs, valid and closed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from weftline.records.model import RECORD_TYPES
from weftline.records.schemas import DIALECT, all_schemas, published_schema, schema_id, schema_url
from weftline.records.vocabulary import field_docs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.req("AC-01")
each_type = pytest.mark.parametrize("record_type", RECORD_TYPES)


def test_the_published_schemas_match_the_structs() -> None:
    assert {name: published_schema(name) for name in RECORD_TYPES} == json.loads(json.dumps(all_schemas()))


@each_type
def test_a_schema_is_valid_and_has_id_and_title(record_type: str) -> None:
    schema = published_schema(record_type)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == DIALECT
    assert schema["$id"] == schema_id(record_type) == f"urn:weftline:agent-context:0.1.0:{record_type}"
    assert schema["title"] == f"Agent Context 0.1.0: {record_type}"
    assert schema["description"]
    assert schema_url(record_type) == f"/schemas/agent-context/0.1.0/{record_type}.schema.json"


@each_type
def test_every_object_of_a_schema_is_closed_and_not_nullable(record_type: str) -> None:
    for part in _parts(published_schema(record_type)):
        assert part.get("type") != "null"
        assert "discriminator" not in part
        assert part.get("additionalProperties") is False or "title" not in part


@each_type
def test_every_field_of_a_schema_has_a_description(record_type: str) -> None:
    schema = published_schema(record_type)
    for part in (schema, *schema["$defs"].values()):
        assert [name for name, field in part["properties"].items() if not field.get("description")] == []


def test_every_description_belongs_to_a_field() -> None:
    parts = [part for schema in all_schemas().values() for part in (schema, *schema["$defs"].values())]
    descriptions = {field["description"] for part in parts for field in part["properties"].values()}
    assert {
        *field_docs()["fields"].values(),
        *(words for others in field_docs()["fields_by_type"].values() for words in others.values()),
    } == descriptions


@each_type
def test_every_ref_resolves_and_every_definition_is_used(record_type: str) -> None:
    schema = published_schema(record_type)
    refs = {part["$ref"] for part in _parts(schema) if "$ref" in part}
    assert refs == {f"#/$defs/{name}" for name in schema["$defs"]}


@each_type
def test_cross_field_rules_are_part_of_the_schema(record_type: str) -> None:
    schema = published_schema(record_type)
    assert len(schema.get("allOf", ())) == len(RECORD_TYPES[record_type].constraints)


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas inside it; ``properties`` and ``$defs`` are maps of schemas."""
    if isinstance(schema, list):
        for each in schema:
            yield from _parts(each)
    elif isinstance(schema, dict):
        yield schema
        for key, inner in schema.items():
            yield from _parts(list(inner.values()) if key in {"properties", "$defs"} else inner)
