"""Redacted items, and masking of the text in records."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, structs

from weftline.exchange.record_log import record_text
from weftline.exchange.record_log.engine_items import EngineItem
from weftline.exchange.record_log.redacted_records import redacted_item
from weftline.exchange.transfer.policy_filter import AppliedPolicy, PolicyDefinition
from weftline.records.model import RECORD_TYPES, ContextItem, MissingContext
from weftline.records.refs import Link, content_digest
from weftline.records.schemas import Redaction
from weftline.safety import redaction as masker_module
from weftline.safety.redaction import Masker

pytestmark = pytest.mark.req("AC-11")
MAIL = "bob@example.com"


def item(**more: Any) -> ContextItem:
    fields = {"schema_version": "0.1.0", "item_id": "n1", "context_kind": "note", "content_mode": "opaque"}
    return ContextItem(**{**fields, "visibility": ("*",), **more})


def redaction(state: str, replacement: str | None = None) -> Redaction:
    return Redaction("n1", None, state, "by hand", "why", "human:dana", 0, replacement)


def test_a_reverted_redaction_changes_nothing() -> None:
    plain = EngineItem(item(content=MAIL, content_mode="inline"), MAIL)
    assert redacted_item(plain, redaction("none"), Masker()) is plain


@pytest.mark.parametrize("state", ["masked", "removed", "encrypted_ref", "summarized", "policy_blocked"])
def test_unavailable_content_is_never_shown(state: str) -> None:
    reference = EngineItem(item(content_mode="ref", content_ref=Link(uri="https://example.com/bob")), None)
    record, text = redacted_item(reference, redaction(state), Masker())
    assert text is None
    assert (record.content_mode, record.content, record.content_ref) == ("opaque", UNSET, UNSET)
    assert (record.redaction_state, record.redacted_by) == (state, "human:dana")


@pytest.mark.parametrize(
    ("fields", "is_shown"), [({}, False), ({"salt": b"16 random bytes."}, True), ({"imported_policies": ()}, True)]
)
def test_an_encrypted_reference_has_a_digest_that_was_salted(fields: dict[str, Any], is_shown: bool) -> None:  # noqa: FBT001
    digest = f"sha256:{'0' * 64}"
    reference = EngineItem(item(content_mode="ref", content_ref=Link(id="x", digest=digest), byte_size=7), None)
    made = structs.replace(redaction("encrypted_ref"), **fields)
    record = redacted_item(reference, made, Masker()).record
    # What was imported in redacted form was salted before it was exported.
    expected = content_digest(made.salt + digest.encode()) if made.salt else digest
    assert record.content_ref == (Link(kind="content", id="n1", digest=expected) if is_shown else UNSET)
    assert record.byte_size is UNSET


def test_values_beyond_the_numbered_ones_are_masked_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masker_module, "_MAX_NUMBERED", 1)
    assert Masker().text("a@x.org b@x.org a@x.org") == "[email 1] [email] [email 1]"


def test_unknown_sensitivity_is_withheld() -> None:
    applied = AppliedPolicy("p", PolicyDefinition(sensitivity="internal"))
    exported = [
        applied.item(EngineItem(item(**fields), None), None) is not None
        for fields in (
            {"sensitivity": "public"},
            {"sensitivity": "internal"},
            {"sensitivity": "top secret"},
            {"visibility": ("principal:ada",)},
            {},
        )
    ]
    assert exported == [True, True, False, False, True]
    assert applied.omitted == 2


RECORDS_WITH_TEXT: dict[str, dict[str, Any]] = {
    "context_envelope": {"context_id": "c", "scope": "turn", "lifecycle": "draft", "metadata": {"a": MAIL}},
    "context_selection": {"selection_id": "s", "surface_id": "x", "query": MAIL, "selection_policy": {"a": [MAIL]}},
    "context_budget": {
        "budget_id": "b",
        "target": "t",
        "truncation_records": [{"item_ref": "x", "strategy": "reject", "reason": MAIL}],
    },
    "context_compaction": {
        "compaction_id": "c",
        "scope": "turn",
        "source_item_refs": ["x"],
        "method": "custom",
        "loss_notes": [MAIL, "none"],
        "validation": {"status": "ok", "notes": [MAIL]},
    },
    "missing_context": {
        "missing_id": "m",
        "scope": "turn",
        "question": MAIL,
        "severity": "low",
        "status": "detected",
        "blocked_actions": [f"mail {MAIL}"],
        "candidate_sources": [{"kind": "person", "hint": MAIL, "uri": f"mailto:{MAIL}"}],
    },
    "context_event": {
        "event_id": "e",
        "event_type": "context.exported",
        "source": "urn:x",
        "time": "2026-01-01T00:00:00Z",
        "data": {"a": {"b": MAIL}},
        "external_mappings": [{"native": "custom", "system": "s", "ids": {"to": MAIL}}],
    },
}


@pytest.mark.parametrize("kind", RECORDS_WITH_TEXT)
def test_text_is_masked_in_every_field_and_the_record_stays_valid(kind: str) -> None:
    created = {"created_at": "2026-01-01T00:00:00Z"} if kind != "context_event" else {}
    record = msgspec.convert({"schema_version": "0.1.0", **created, **RECORDS_WITH_TEXT[kind]}, RECORD_TYPES[kind])
    for shown in (
        record_text.mask_record(record, Masker()),
        record_text.strip_text(record_text.mask_record(record, Masker())),
    ):
        encoded = msgspec.json.encode(shown)
        assert MAIL.encode() not in encoded
        assert msgspec.json.decode(encoded, type=RECORD_TYPES[kind]) == shown
    assert record_text.mask_record(record, Masker([])) == record


def test_ids_are_not_masked() -> None:
    fields = {**RECORDS_WITH_TEXT["missing_context"], "missing_id": MAIL, "resolution_refs": [MAIL, {"id": MAIL}]}
    raw = {"schema_version": "0.1.0", "created_at": "2026-01-01T00:00:00Z", **fields}
    masked = record_text.mask_record(msgspec.convert(raw, MissingContext), Masker())
    assert (masked.missing_id, masked.resolution_refs) == (MAIL, (MAIL, Link(id=MAIL)))


@given(st.text(max_size=200))
def test_a_masked_item_has_the_digest_of_its_masked_content(text: str) -> None:
    content = f"{text} {MAIL}"
    shown = redacted_item(
        EngineItem(item(content=content, content_mode="inline"), content), redaction("masked"), Masker()
    )
    assert shown.text == shown.record.content
    assert shown.record.byte_size == len(str(shown.text).encode())
    assert MAIL not in str(shown.text)
