"""The records of a compaction: valid by the schemas, with coverage, losses, validation and refresh."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from support.public_schemas import public_validator
from weftline.records.record_ids import SummaryId, is_reserved
from weftline.records.validation import check_record
from weftline.safety.trust.model import Source, Trust, TrustLabel
from weftline.windows.compaction.model import (
    CompactedView,
    Compaction,
    CompactionState,
    FactKind,
    KeyFact,
    ShortenedEvent,
    Summary,
)
from weftline.windows.compaction.records import compaction_record, summary_id, summary_record

pytestmark = pytest.mark.req("AC-09")
LINE = "window:s1:planner"
ITEMS = {f"e{number}": f"{LINE}/e{number}/1.1" for number in (1, 2, 3)}


def summary(**changed: Any) -> Summary:
    plain = Summary(
        summary_id="1-2",
        title="Events 1 to 2",
        text="They use PostgreSQL.",
        method="extractive_summary",
        sources={"e1": "1.1", "e2": "1.1"},
        first_number=1,
        last_number=2,
        first_at=1,
        last_at=2,
        tokens_before=100,
        tokens=40,
        confidence=0.9,
        loss_notes=("2 sentences of small talk left out.",),
        trust=TrustLabel(Source.TOOL, Trust.UNTRUSTED),
    )
    return structs.replace(plain, **changed)


def compaction(**changed: Any) -> Compaction:
    plain = Compaction(
        compaction_id="0A",
        session_id="s1",
        agent_id="planner",
        line_id=LINE,
        requested_by="orchestrator:planner",
        trigger="threshold",
        state=CompactionState.APPLIED,
        strategy="auto",
        used="sliding_window",
        target=0.4,
        keep_recent=20,
        created_at=1,
        finished_at=5,
        version="ab",
        tokens_before=130,
        tokens_after=60,
    )
    return structs.replace(plain, **changed)


def fact(fact_id: str, *, carried: bool = False, event_id: str = "e1") -> KeyFact:
    return KeyFact(
        fact_id=fact_id,
        kind=FactKind.DECISION,
        text="PostgreSQL 16",
        who="user",
        at=1,
        event_ids=(event_id,),
        carried=carried,
    )


VIEW = CompactedView(
    summaries=(summary(),),
    shortened=(ShortenedEvent(event_id="e3", version="1.1", content="…", tokens_before=30, tokens=20),),
    facts=(fact("e1#1"), fact("e2#1", carried=True, event_id="e2")),
)


def wire(record: msgspec.Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(record))


def test_a_compaction_says_what_was_replaced_why_and_what_was_lost() -> None:
    name = str(summary_id(LINE, VIEW.summaries[0], VIEW.facts))
    record = wire(compaction_record(compaction(), VIEW, [name], ITEMS))
    public_validator("context_compaction").validate(record)
    check_record(msgspec.json.encode(record), "context_compaction")
    assert record["compaction_id"] == "compaction:0A"
    assert record["source_item_refs"] == list(ITEMS.values())
    assert (record["summary_ref"], record["trigger"], record["method"]) == (
        name,
        "token_pressure",
        "extractive_summary",
    )
    assert record["coverage"] == {"items_covered": 3, "estimated_tokens_before": 130, "estimated_tokens_after": 60}
    assert record["loss_notes"] == ["2 sentences of small talk left out."]
    assert (record["validation"]["status"], record["validation"]["metadata"]) == (
        "verified",
        {"facts": 2, "facts_in_text": 1, "facts_listed": 1},
    )
    assert "unchanged" in record["replacement_policy"]
    assert (record["metadata"]["weftline"]["strategy"], record["metadata"]["weftline"]["shortened"]) == (
        "sliding_window",
        1,
    )


def test_a_summary_says_how_to_refresh_it_and_how_far_to_trust_it() -> None:
    record = wire(summary_record(compaction(), VIEW, VIEW.summaries[0], ITEMS))
    check_record(msgspec.json.encode(record), "context_summary")
    assert (record["content"], record["token_estimate"]) == ("They use PostgreSQL.", 40)
    assert record["source_item_refs"] == [ITEMS["e1"], ITEMS["e2"]]
    assert record["compaction_ref"] == "compaction:0A"
    assert record["refresh_policy"]["refresh"] == "context.compact"
    assert record["sensitivity"] == "private"
    native = record["metadata"]["weftline"]
    assert (native["trust"]["trust"], native["confidence"]) == ("untrusted", 0.9)
    assert [(each["fact_id"], each["text"]) for each in native["facts"]] == [("e2#1", "PostgreSQL 16")]


@pytest.mark.parametrize(
    ("changed", "status", "reviewer"),
    [
        ({}, "verified", "weftline"),
        ({"degraded": ("model timeout",)}, "degraded", "weftline"),
        ({"approval_id": "a1"}, "reviewed", {"kind": "approval", "id": "a1"}),
    ],
)
def test_the_validation_says_who_checked_it(changed: dict[str, Any], status: str, reviewer: Any) -> None:
    record = wire(compaction_record(compaction(**changed), VIEW, ["x"], ITEMS))
    assert (record["validation"]["status"], record["validation"]["reviewer"]) == (status, reviewer)


def test_the_id_of_a_summary_depends_on_its_text_sources_and_listed_facts() -> None:
    first = summary_id(LINE, summary())
    assert SummaryId.parse(str(first)) == first
    assert str(first).startswith("summary:s1:planner/1-2.")
    assert is_reserved(str(first))
    assert is_reserved("compaction:0A")
    assert summary_id(LINE, summary(confidence=0.1, title="other")) == first
    for changed in ({"text": "other"}, {"sources": {"e1": "1.1", "e2": "1.2"}}, {"loss_notes": ()}):
        assert summary_id(LINE, summary(**changed)) != first
    assert summary_id(f"{LINE}@try", summary()) != first
    assert summary_id(LINE, summary(), [fact("e1#1"), fact("e3#1", carried=True, event_id="e3")]) == first
    assert summary_id(LINE, summary(), [fact("e1#1", carried=True)]) != first
    for name in ("summary:x", "summary:/1-2.0123456789abcdef", "other:s1:planner/1-2.0123456789abcdef"):
        assert SummaryId.parse(name) is None


def test_a_text_above_the_limit_of_records_is_named_by_its_digest() -> None:
    long = summary(text="x" * 100_001)
    record = wire(summary_record(compaction(), CompactedView(summaries=(long,)), long, ITEMS))
    check_record(msgspec.json.encode(record), "context_summary")
    assert record["content_ref"]["digest"].startswith("sha256:")
    assert "content" not in record


def test_the_method_of_a_compaction_is_that_of_most_of_its_tokens() -> None:
    digest = summary(method="structured_digest", tokens_before=500, sources={"e3": "1.1"})
    view = CompactedView(summaries=(summary(), digest))
    record = wire(compaction_record(compaction(), view, ["a", "b"], ITEMS))
    assert record["method"] == "structured_digest"
    assert record["summary_ref"] == {"kind": "compacted_view", "id": "compaction:0A"}
    assert record["metadata"]["weftline"]["summary_refs"] == ["a", "b"]
    only_shortened = CompactedView(shortened=VIEW.shortened)
    assert compaction_record(compaction(), only_shortened, [], ITEMS).method == "extractive_summary"
