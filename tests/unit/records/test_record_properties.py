"""Any record of any type: what is written is read again, and spoiled ones are refused by struct and schema alike."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_records import JSON, records
from public_shapes import PUBLIC, public_checker
from record_files import VALID, decoded, schema_checker, told_in, type_of

from support.full_run import examples
from weft.capabilities.records.model import RECORD_TYPES
from weft.capabilities.records.validation import check_record, parse_record
from weft.capabilities.records.validation_errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.capabilities.records.refs import RecordPart

pytestmark = pytest.mark.req("AC-01")
EXAMPLES = examples(30)
each_type = pytest.mark.parametrize("record_type", RECORD_TYPES)
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@each_type
@many
@given(data=st.data())
def test_any_record_round_trips_and_is_valid_by_both_schemas(record_type: str, data: st.DataObject) -> None:
    record = data.draw(records(record_type))
    written = msgspec.json.encode(record)
    assert check_record(written) == record
    assert check_record(written, record_type) == record
    assert msgspec.json.encode(check_record(written)) == written
    told = json.loads(written)
    assert list(schema_checker(record_type).iter_errors(told)) == []
    if record_type in PUBLIC:
        assert list(public_checker(record_type).iter_errors(told)) == []


@each_type
@many
@given(data=st.data())
def test_struct_and_schema_agree_on_mutated_records(record_type: str, data: st.DataObject) -> None:
    told = json.loads(msgspec.json.encode(data.draw(records(record_type))))
    holder, key = data.draw(st.sampled_from(list(_places(told))))
    holder[key] = data.draw(JSON.filter(lambda value: not _holds_whole_float(value)))
    refused = _refusal(told, record_type)
    if " is below `" not in refused:
        assert schema_checker(record_type).is_valid(told) == (not refused), refused


@pytest.mark.parametrize("name", [name for name in VALID if name.endswith(("-full.json", "-its-schema.json"))])
def test_every_invalid_mutation_is_refused_by_struct_and_schema(name: str) -> None:
    (told,) = told_in(name)
    schema = schema_checker(type_of(name))
    spoiled = 0
    for spoil, mend in _mutations(decoded(told, type_of(name)), told):
        spoil()
        assert _refusal(told, type_of(name)), told
        assert not schema.is_valid(told), told
        mend()
        spoiled += 1
    assert spoiled > 20
    assert _refusal(told, type_of(name)) == ""
    assert schema.is_valid(told)


def _refusal(told: dict[str, Any], record_type: str) -> str:
    try:
        parse_record(told, record_type)
    except InvalidRecord as found:
        return str(found)
    return ""


def _mutations(part: RecordPart, told: dict[str, Any]) -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
    """Yield how to spoil a part in one way, and how to mend it again."""
    yield lambda: told.__setitem__("surplus", 1), lambda: told.pop("surplus")
    for field in msgspec.structs.fields(part):
        name, value = field.encode_name, getattr(part, field.name)
        if name not in told or field.type is Any:
            continue
        mend = lambda name=name, before=told[name]: told.__setitem__(name, before)  # noqa: E731
        if field.required:
            yield lambda name=name: told.pop(name), mend
        for wrong in (None, *([] if bool in get_args(field.type) else [True])):
            yield lambda name=name, wrong=wrong: told.__setitem__(name, wrong), mend
        if isinstance(value, str) and "typing.Literal" in str(field.type):
            yield lambda name=name: told.__setitem__(name, "no such word"), mend
        yield from _inside(value, told[name])


def _inside(value: Any, told: Any) -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
    if isinstance(value, msgspec.Struct):
        yield from _mutations(value, told)
    elif isinstance(value, tuple):
        for inner, told_inner in zip(value, told, strict=True):
            yield from _inside(inner, told_inner)


def _places(told: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in JSON, as what holds it and where in there."""
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for key, value in list(inner):
        yield told, key
        yield from _places(value)


def _holds_whole_float(value: Any) -> bool:
    """Tell whether a number is written like 2.0, which to JSON Schema is the whole number that it is to no struct."""
    return any(isinstance(holder[key], float) and holder[key].is_integer() for holder, key in _places([value]))
