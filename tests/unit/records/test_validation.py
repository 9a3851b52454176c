"""Validation of documents: accepted forms, and errors with line, path and reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.record_strategies import JSON
from weftline.records.model import RECORD_TYPES, ContextEvent, ContextInjection
from weftline.records.validation import (
    ID_FIELDS,
    MAX_DEPTH,
    InvalidRecord,
    Problem,
    check_document,
    check_record,
    parse_record,
)

pytestmark = pytest.mark.req("AC-01")
ITEM: dict[str, Any] = {
    "schema_version": "0.1.0",
    "item_id": "message:s1/1",
    "context_kind": "message",
    "content_mode": "inline",
    "content": "x",
    "visibility": ["*"],
}
TEXT = json.dumps(ITEM)
INVALID = json.dumps({**ITEM, "content_mode": "loud"})
NOT_A_RECORD = f"is not a record: it has none of the fields {', '.join(ID_FIELDS)}"
TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"


def problems_in(document: bytes) -> list[Problem]:
    return check_document(document).problems


def nested(levels: int) -> str:
    """Return an item nested ``levels`` deep, counting itself."""
    return TEXT.replace('"x"', "[" * (levels - 1) + "]" * (levels - 1))


@pytest.mark.parametrize(
    ("document", "record_count"),
    [
        (TEXT, 1),
        (json.dumps(ITEM, indent=2) + "\n\n", 1),
        (f"\n[{TEXT},\n {TEXT}]\n", 2),
        (f"{TEXT}\n{TEXT}\r\n\n{TEXT}", 3),
        (f'{{"type": "context_item", "record": {TEXT}}}', 1),
        (f'[{{"type": "context_item", "record": {TEXT}}}, {TEXT}]', 2),
        (f'{{"record": {TEXT}, "type": "context_item"}}\n{TEXT}', 2),
        (nested(MAX_DEPTH), 1),
        (TEXT.replace('"x"', '"' + "[" * 2 * MAX_DEPTH + '\\""'), 1),
        (TEXT.replace('"x"', json.dumps([[n] for n in range(99)])), 1),
        (TEXT.replace("item_id", "item\\u005fid").replace('"x"', '"a\\u003ab: c"'), 1),
    ],
)
def test_every_form_of_document_is_read(document: str, record_count: int) -> None:
    assert check_document(document.encode()) == (record_count, [])


@pytest.mark.parametrize(
    ("document", "line", "path", "reason"),
    [
        ("", 1, "$", "is empty: it contains no record"),
        (" \n\n", 1, "$", "is empty: it contains no record"),
        ("[]", 1, "$", "contains no record"),
        ("17", 1, "$", "a record is an object"),
        ("{}", 1, "$", NOT_A_RECORD),
        (f"[{TEXT},\n\n7]", 3, "$[1]", "a record is an object"),
        (f"{TEXT}\n\n[{TEXT}]", 3, "$", "a record is an object"),
        ("\ufeff" + TEXT, 1, "$", "begins with a byte order mark, which JSON does not allow"),
        (f"{TEXT}\n{TEXT[:-1]}", 2, "$", "is not JSON: unexpected end"),
        (TEXT.replace('"x"', '"\\ud800"'), 1, "$", "is not JSON: unexpected end of escaped utf-16"),
        (TEXT.replace('"x"', "NaN"), 1, "$", "is not JSON: NaN and Infinity are not allowed"),
        (TEXT.replace('"x"', "-Infinity"), 1, "$", "is not JSON: NaN and Infinity are not allowed"),
        (TEXT.replace('"x"', "1e999"), 1, "$", "is not JSON: Number out of range"),
        ('{\n "item_id": "a",\n}', 3, "$", "is not JSON: trailing comma in object (column 1)"),
        (f"[{TEXT}\n {TEXT}]", 2, "$", "is not JSON: expected ',' or ']' (column 2)"),
        (nested(MAX_DEPTH + 1), 1, "$", TOO_DEEP),
        (nested(100_000), 1, "$", TOO_DEEP),
        ("[" * 100_000, 1, "$", TOO_DEEP),
        (TEXT[:-1] + ', "item_id": "b"}', 1, "$.item_id", "is a duplicate name"),
        (TEXT[:-1] + ', "item_id": "\\u003a"}', 1, "$.item_id", "is a duplicate name"),
        (TEXT.replace('"x"', '[{"a": [1, {"b": ":", "b": 2}]}]'), 1, "$.content[0].a[1].b", "is a duplicate name"),
        (f'{{"type": "context_item", "record": {INVALID}}}', 1, "$.record.content_mode", "'loud' is not one of "),
        (f'{{"type": "context_itme", "record": {TEXT}}}', 1, "$.type", "'context_itme' is not one of context_envel"),
        (f'{{"type": 7, "record": {TEXT}}}', 1, "$.type", "'7' is not one of context_envelope, "),
        ('{"type": "context_item", "record": []}', 1, "$.record", "a record is an object"),
        (f'{{"type": "context_event", "record": {TEXT}}}', 1, "$.record.item_id", "is not a known field"),
    ],
)
def test_every_problem_is_reported_with_line_path_and_reason(document: str, line: int, path: str, reason: str) -> None:
    (problem,) = problems_in(document.encode())
    assert (problem.line, problem.path) == (line, path)
    assert problem.reason.startswith(reason)


def test_invalid_utf_8_is_reported_by_byte_offset() -> None:
    document = TEXT.encode() + b"\n" + TEXT.encode().replace(b'"x"', b'"\xff"')
    assert problems_in(document) == [Problem(2, "$", f"is not UTF-8 text (byte {document.index(0xFF) + 1})")]


def test_every_invalid_record_of_a_document_is_reported() -> None:
    problems = problems_in(f"{TEXT}\n{INVALID}\n{{}}\n{TEXT}\n{TEXT[1:]}".encode())
    assert [(problem.line, problem.path) for problem in problems] == [(2, "$.content_mode"), (3, "$"), (5, "$")]
    pretty = json.dumps([ITEM, json.loads(INVALID), {}], indent=1)
    problems = problems_in(pretty.encode())
    assert [problem.path for problem in problems] == ["$[1].content_mode", "$[2]"]
    assert [pretty.splitlines()[problem.line - 1].strip() for problem in problems] == ["{", "{}"]


@pytest.mark.parametrize("written", ["2026-05-08t09:30:00Z", "2026-05-08T09:30:00z", "2026-05-08T09:30:00+0200"])
def test_a_standalone_timestamp_must_be_rfc_3339(written: str) -> None:
    reason = "is not a time like 2026-05-08T12:30:00Z"
    items = {
        "$.created_at": {"created_at": written},
        "$.freshness.as_of": {"freshness": {"as_of": written}},
        "$.external_mappings[1].time": {
            "external_mappings": [{"native": "mcp"}, {"native": "cloudevents", "time": written}]
        },
    }
    for path, more in items.items():
        assert problems_in(json.dumps({**ITEM, **more}).encode()) == [Problem(1, path, reason)]


def test_the_record_type_is_inferred_from_its_own_id_field() -> None:
    event = {"schema_version": "0.1.0", "event_id": "e", "event_type": "context.exported", "source": "weftline:1"}
    event |= {"time": "2026-05-08T09:30:00Z", "context_id": "ctx_1"}
    assert isinstance(parse_record(event), ContextEvent)
    injection = {"schema_version": "0.1.0", "injection_id": "i", "assembly_id": "a", "target": "model:x"}
    injection |= {"injection_point": "ui_panel", "created_at": "2026-05-08T09:30:00Z"}
    assert isinstance(parse_record(injection), ContextInjection)
    assert {kind.id_field for kind in RECORD_TYPES.values()} == set(ID_FIELDS)


def test_a_validation_error_has_a_path_and_a_reason() -> None:
    with pytest.raises(InvalidRecord, match=r"^\$\.context_kind: is required$"):
        parse_record({"item_id": "a", "schema_version": "0.1.0"})
    with pytest.raises(InvalidRecord, match=r"^\$\.type: 'nonsense' is not one of "):
        check_record(TEXT.encode(), "nonsense")


def test_error_messages_truncate_huge_values() -> None:
    (problem,) = problems_in(json.dumps({**ITEM, "content_mode": "x" * 100_000}).encode())
    assert len(problem.reason) < 500


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_parsed_or_refused_with_a_message(document: bytes) -> None:
    assert all(problem.reason and problem.line >= 1 for problem in problems_in(document))


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), JSON, min_size=1, max_size=3), st.data())
def test_duplicate_json_names_are_always_refused(value: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(value)))
    duplicated = f"{json.dumps(value)[:-1]}, {json.dumps(name)}: 1}}"
    document = f'{{"selection_id": "s", "metadata": [{json.dumps(value)}, {duplicated}]}}'
    with pytest.raises(InvalidRecord, match="is a duplicate name"):
        check_record(document.encode())
