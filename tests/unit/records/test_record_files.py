"""The example records: struct, published schema and validation agree on each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec
import pytest
from record_files import FOLDER, INVALID, VALID, decoded, raw_records, schema_validator, type_of

from support.public_schemas import PUBLIC, public_validator
from weftline.records.model import RECORD_TYPES
from weftline.records.refs import Mapping, Selector
from weftline.records.validation import Problem, check_document, check_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.records.refs import RecordPart

pytestmark = pytest.mark.req("AC-01")


def test_every_type_has_three_valid_and_three_invalid_examples() -> None:
    for record_type in RECORD_TYPES:
        assert sum(type_of(name) == record_type for name in VALID) >= 3, record_type
        assert sum(type_of(name) == record_type for name in INVALID) >= 3, record_type


def test_every_invalid_file_has_an_expected_error() -> None:
    assert {str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/invalid-*.json")} == set(INVALID)


@pytest.mark.parametrize("record_type", RECORD_TYPES)
def test_valid_files_are_accepted_by_struct_schema_and_validation(record_type: str) -> None:
    for name in (name for name in VALID if type_of(name) == record_type):
        for raw in raw_records(name):
            record = decoded(raw, record_type)
            assert check_record(json.dumps(raw).encode()) == record, name
            assert list(schema_validator(record_type).iter_errors(raw)) == [], name
        assert check_document((FOLDER / name).read_bytes()) == (len(raw_records(name)), []), name


@pytest.mark.parametrize("record_type", PUBLIC)
def test_valid_files_and_their_reencoded_form_are_accepted_by_the_public_schema(record_type: str) -> None:
    for name in (name for name in VALID if type_of(name) == record_type):
        for raw in raw_records(name):
            written = json.loads(msgspec.json.encode(decoded(raw, record_type)))
            for each in (raw, written):
                assert list(public_validator(record_type).iter_errors(each)) == [], name


@pytest.mark.parametrize("record_type", RECORD_TYPES)
def test_invalid_files_are_refused_with_path_and_reason(record_type: str) -> None:
    for name in (name for name in INVALID if type_of(name) == record_type):
        document = (FOLDER / name).read_bytes()
        path, reason, beyond_schema = INVALID[name]
        assert check_document(document) == (1, [Problem(1, path, reason)]), name
        assert schema_validator(record_type).is_valid(json.loads(document)) == beyond_schema, name


def test_only_range_order_is_not_expressible_in_json_schema() -> None:
    beyond = [expected.reason for expected in INVALID.values() if expected.beyond_schema]
    assert beyond
    assert all(" is below `" in reason for reason in beyond)


@pytest.mark.req("AC-02")
@pytest.mark.req("AC-06", part="selections of searches and of frameworks")
@pytest.mark.req("AC-07", part="record types and their fields; the budget of a search")
@pytest.mark.req("AC-08", part="record types, and pulls")
@pytest.mark.req("AC-09", part="record types and their fields; compactions recorded by frameworks")
@pytest.mark.req("AC-11")
def test_the_examples_cover_every_field_and_enum_value() -> None:
    fields: set[tuple[type, str]] = set()
    enum_values: set[tuple[frozenset[str], str]] = set()
    kinds: set[type] = set()
    for part in _parts_of_all_examples():
        kinds.add(type(part))
        for field in msgspec.structs.fields(part):
            value = getattr(part, field.name)
            if field.required or value not in (msgspec.UNSET, (), {}, ""):
                fields.add((type(part), field.name))
            enum_values |= {(enum, value) for enum in _enums(field.type) if isinstance(value, str)}
    every_kind = set(_kinds(RECORD_TYPES.values()))
    assert {*get_args(Selector), *get_args(Mapping)} < every_kind
    assert every_kind - kinds == set()
    assert {(kind, name) for kind in every_kind for name in kind.__struct_fields__} - fields == set()
    assert {(enum, value) for enum in {enum for enum, _ in enum_values} for value in enum} == enum_values


def _parts_of_all_examples() -> Iterator[RecordPart]:
    for name in VALID:
        for raw in raw_records(name):
            yield from _parts_of(decoded(raw, type_of(name)))


def _parts_of(value: Any) -> Iterator[RecordPart]:
    if isinstance(value, msgspec.Struct):
        yield value
        value = msgspec.structs.astuple(value)
    if isinstance(value, tuple):
        for inner in value:
            yield from _parts_of(inner)


def _kinds(hints: Any) -> Iterator[type[RecordPart]]:
    for hint in hints:
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield hint
            yield from _kinds(field.type for field in msgspec.structs.fields(hint))
        else:
            yield from _kinds(get_args(hint))


def _enums(hint: Any) -> Iterator[frozenset[str]]:
    if get_origin(hint) is Literal:
        yield frozenset(get_args(hint))
    else:
        for inner in get_args(hint):
            yield from _enums(inner)
