"""Any record round-trips; struct and schema refuse the same mutated records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_files import VALID, decoded, raw_records, schema_validator, type_of

from support.full_run import examples
from support.public_schemas import PUBLIC, public_validator
from support.record_strategies import JSON, records
from weftline.records.model import RECORD_TYPES
from weftline.records.validation import InvalidRecord, check_record, parse_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.records.refs import RecordPart

pytestmark = pytest.mark.req("AC-01")
EXAMPLES = examples(30)
each_type = pytest.mark.parametrize("record_type", RECORD_TYPES)
many_examples = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@each_type
@many_examples
@given(data=st.data())
def test_any_record_round_trips_and_is_valid_by_both_schemas(record_type: str, data: st.DataObject) -> None:
    record = data.draw(records(record_type))
    written = msgspec.json.encode(record)
    assert check_record(written) == record
    assert check_record(written, record_type) == record
    assert msgspec.json.encode(check_record(written)) == written
    raw = json.loads(written)
    assert list(schema_validator(record_type).iter_errors(raw)) == []
    if record_type in PUBLIC:
        assert list(public_validator(record_type).iter_errors(raw)) == []


@each_type
@many_examples
@given(data=st.data())
def test_struct_and_schema_agree_on_mutated_records(record_type: str, data: st.DataObject) -> None:
    raw = json.loads(msgspec.json.encode(data.draw(records(record_type))))
    container, key = data.draw(st.sampled_from(list(_positions(raw))))
    container[key] = data.draw(JSON.filter(lambda value: not _holds_whole_float(value)))
    refused = _refusal(raw, record_type)
    if " is below `" not in refused:
        assert schema_validator(record_type).is_valid(raw) == (not refused), refused


@pytest.mark.parametrize("name", [name for name in VALID if name.endswith(("-full.json", "-its-schema.json"))])
def test_every_invalid_mutation_is_refused_by_struct_and_schema(name: str) -> None:
    (raw,) = raw_records(name)
    schema = schema_validator(type_of(name))
    mutations = 0
    for mutate, restore in _mutations(decoded(raw, type_of(name)), raw):
        mutate()
        assert _refusal(raw, type_of(name)), raw
        assert not schema.is_valid(raw), raw
        restore()
        mutations += 1
    assert mutations > 20
    assert _refusal(raw, type_of(name)) == ""
    assert schema.is_valid(raw)


def _refusal(raw: dict[str, Any], record_type: str) -> str:
    try:
        parse_record(raw, record_type)
    except InvalidRecord as found:
        return str(found)
    return ""


def _mutations(part: RecordPart, raw: dict[str, Any]) -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
    """Yield pairs of functions: one makes a part invalid, the other restores it."""
    yield lambda: raw.__setitem__("surplus", 1), lambda: raw.pop("surplus")
    for field in msgspec.structs.fields(part):
        name, value = field.encode_name, getattr(part, field.name)
        if name not in raw or field.type is Any:
            continue
        restore = lambda name=name, before=raw[name]: raw.__setitem__(name, before)  # noqa: E731
        if field.required:
            yield lambda name=name: raw.pop(name), restore
        for wrong in (None, *([] if bool in get_args(field.type) else [True])):
            yield lambda name=name, wrong=wrong: raw.__setitem__(name, wrong), restore
        if isinstance(value, str) and "typing.Literal" in str(field.type):
            yield lambda name=name: raw.__setitem__(name, "no such word"), restore
        yield from _mutations_inside(value, raw[name])


def _mutations_inside(value: Any, raw: Any) -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
    if isinstance(value, msgspec.Struct):
        yield from _mutations(value, raw)
    elif isinstance(value, tuple):
        for inner, raw_inner in zip(value, raw, strict=True):
            yield from _mutations_inside(inner, raw_inner)


def _positions(raw: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every position in JSON as its container and key."""
    inner = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in list(inner):
        yield raw, key
        yield from _positions(value)


def _holds_whole_float(value: Any) -> bool:
    """Return whether a float like 2.0 is inside, which JSON Schema accepts as an integer and structs do not."""
    return any(
        isinstance(container[key], float) and container[key].is_integer() for container, key in _positions([value])
    )
