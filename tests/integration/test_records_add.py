"""Records added by agents: atomic, unchanged, and for their audience."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from support.records import AT, all_records, envelope, event_classes, ids, item
from support.world import SESSION, outcome, refused
from weftline.records.vocabulary import EVENT_CLASSES

if TYPE_CHECKING:
    from support.world import Caller, World

BUDGET = {"schema_version": "0.1.0", "budget_id": "b1", "target": "m", "created_at": AT, "max_tokens": 8_000}


async def add(caller: Caller, *records: dict[str, Any], **options: Any) -> Any:
    return (await caller.call("records.add", **{"session_id": SESSION, **options}, records=list(records)))["records"]


async def shown(caller: Caller, record_id: str, **how: Any) -> Any:
    return await caller.call("records.show", record_id=record_id, **how)


@pytest.mark.req("AC-02")
@pytest.mark.req("AC-07", part="record types and their fields; the budget of a search")
async def test_a_record_is_stored_unchanged(world: World) -> None:
    records_to_add = [
        envelope("c1", actor_refs=["planner"], metadata={"any": [1, 1.0, None, "é"], "deep": {"a": [[{}]]}}),
        {
            **BUDGET,
            "overflow_strategy": "summarize_oldest",
            "window_segments": [{"name": "system", "item_refs": ["i"]}],
        },
    ]
    added = await add(world.planner, *records_to_add)
    assert [(each["type"], each["id"]) for each in added] == [("context_envelope", "c1"), ("context_budget", "b1")]
    entries = await all_records(world.analysis, session_id=SESSION)
    assert [entry["record"] for entry in entries[1:]] == records_to_add
    assert [entry["seq"] for entry in entries[1:]] == [each["seq"] for each in added]
    one = await shown(world.analysis, "c1")
    assert (one["record"], one["seq"]) == (records_to_add[0], added[0]["seq"])
    assert one["recorded_by"] == "orchestrator:planner"


@pytest.mark.req("AC-06", part="selections of searches and of frameworks")
@pytest.mark.req("AC-09", part="record types and their fields; compactions recorded by frameworks")
async def test_a_framework_records_its_own_selection_assembly_injection_and_compaction(world: World) -> None:
    await world.planner.write("goal", "ship")
    goal = "board:s1/goal/1.1"
    base = {"schema_version": "0.1.0", "created_at": AT}
    omitted = [{"item_ref": "message:s1/1", "reason": "low_relevance"}]
    records = {
        "context_selection": {"selection_id": "s", "surface_id": "session:s1", "omitted_item_refs": omitted},
        "context_window": {"window_id": "w", "target": "m", "segments": [{"name": "user"}]},
        "context_assembly": {"assembly_id": "a", "target": "m", "ordered_blocks": [{"item_refs": [goal]}]},
        "context_injection": {
            "injection_id": "i",
            "assembly_id": "a",
            "target": "m",
            "injection_point": "system_prompt",
        },
        "context_compaction": {
            "compaction_id": "k",
            "scope": "session",
            "source_item_refs": [goal],
            "method": "rolling_summary",
        },
        "context_summary": {"summary_id": "y", "content": "Ship.", "source_item_refs": [goal]},
    }
    before = await world.last_event()
    await add(world.planner, *({**base, **record} for record in records.values()))
    events = (await world.planner.events(after=before))["events"]
    assert [event["type"] for event in events] == [
        "context.selection.completed",
        "context.budget.applied",
        "context.assembly.created",
        "context.injection.applied",
        "context.compaction.completed",
        "context.summary.created",
    ]
    assert [event["data"]["record_type"] for event in events] == list(records)
    assert [named["id"] for named in (await shown(world.planner, goal))["referenced_by"]] == ["a", "k", "y"]
    assert [named["id"] for named in (await shown(world.planner, goal))["referenced_by"]] == ["a", "k", "y"]


@pytest.mark.req("AC-13")
@pytest.mark.parametrize("event_class", sorted(EVENT_CLASSES))
async def test_an_added_event_is_published_under_its_class(world: World, event_class: str) -> None:
    record = {"schema_version": "0.1.0", "event_id": "e1", "event_type": event_class, "source": "urn:mine", "time": AT}
    before = await world.last_event()
    await add(world.planner, {**record, "data": {"step": 1}})
    (event,) = (await world.analysis.events(after=before, session_id=SESSION))["events"]
    assert (event["type"], event["subject"]) == (event_class, "e1")
    for types in ([], ["context_event"]):
        entries = await all_records(world.analysis, session_id=SESSION, types=types)
        recorded = [entry["record"] for entry in entries if entry["seq"] == event["seq"]]
        assert recorded == [{**record, "data": {"step": 1}}]


async def test_adding_records_is_atomic(world: World) -> None:
    await add(world.planner, envelope("taken"))
    before = await world.last_event()
    for last in (envelope("taken", scope="task"), {"schema_version": "0.1.0"}, envelope("c2", scope="never")):
        assert await outcome(add(world.planner, envelope("c1"), last)) != "ok"
    assert await world.last_event() == before
    assert await ids(world.planner, session_id=SESSION, types=["context_envelope"]) == ["taken"]


async def test_adding_the_same_record_twice_is_idempotent(world: World) -> None:
    (first,) = await add(world.planner, envelope("c1"))
    before = await world.last_event()
    (second,) = await add(world.planner, envelope("c1"))
    assert second == {**first, "known": True}
    assert await world.last_event() == before
    with refused("RECORD_EXISTS"):
        await add(world.planner, envelope("c1", scope="task"))
    with refused("RECORD_EXISTS"):
        await add(world.planner, envelope("c1"), session_id=None)


async def test_two_authors_with_the_same_record_id_are_distinguished(world: World) -> None:
    calls = [
        add(caller, envelope("c1", metadata={"n": n})) for n, caller in enumerate([world.planner, world.analysis] * 3)
    ]
    outcomes = await asyncio.gather(*map(outcome, calls))
    assert sorted(set(outcomes)) == ["RECORD_EXISTS", "ok"]
    (kept,) = await all_records(world.planner, session_id=SESSION, types=["context_envelope"])
    assert outcomes[kept["record"]["metadata"]["n"]] == "ok"


async def test_an_invalid_field_is_named_by_its_path(world: World) -> None:
    wrong = {
        "records[1].scope": envelope("c2", scope="never"),
        "records[1].created_at": envelope("c2", created_at="yesterday"),
        "records[1]": {"schema_version": "0.1.0"},
        "records[1].context_id": envelope("session:s1"),
        "records[1].item_id": item("message:s1/1", "mine"),
        "records[1].content_ref.kind": item(
            "mine", None, content_mode="ref", content_ref={"kind": "content", "id": "x", "digest": f"sha256:{'0' * 64}"}
        ),
    }
    for place, record in wrong.items():
        with refused("INVALID_INPUT_FORMAT") as caught:
            await add(world.planner, envelope("c1"), record)
        assert caught.value.context["field"] == place
        assert caught.value.message.startswith(place)
    for odd in ({"a": float("nan")}, {"a": "\ud800"}, {"a": {1: 2}}, {"a": object()}):
        with refused("INVALID_INPUT_FORMAT"):
            await add(world.planner, envelope("c1", metadata=odd))


@pytest.mark.parametrize(
    ("field", "record_id"),
    [
        ("item_id", "board:s1/goal/1.1"),
        ("item_id", "board:s1@try/goal/1.1/removed"),
        ("item_id", "memory:planner/a/1.1"),
        ("item_id", "context:planner:learned_knowledge/a/b/1.1"),
        ("item_id", "agent:planner/role/1.1"),
        ("item_id", "message:s1/1"),
        ("surface_id", "session:s1"),
        ("assembly_id", "pull:s1/planner/1.1"),
        ("event_id", "urn:weftline:0123#4"),
    ],
)
async def test_ids_reserved_by_weftline_are_refused(world: World, field: str, record_id: str) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        await add(world.planner, {**FULL[field], field: record_id})
    assert (caught.value.context["field"], "Weftline" in caught.value.message) == (f"records[0].{field}", True)


FULL: dict[str, dict[str, Any]] = {
    "item_id": item("x", "text"),
    "surface_id": {"schema_version": "0.1.0", "scope": "session", "created_at": AT},
    "assembly_id": {"schema_version": "0.1.0", "target": "m", "ordered_blocks": [], "created_at": AT},
    "event_id": {"schema_version": "0.1.0", "event_type": "context.exported", "source": "urn:x", "time": AT},
}


async def test_missing_context_of_others_is_listed_and_resolved_like_reported_one(world: World) -> None:
    gap = {"missing_id": "m1", "scope": "task", "question": "Who?", "severity": "low", "status": "detected"}
    await add(world.planner, {"schema_version": "0.1.0", "created_at": AT, **gap})
    (listed,) = (await world.review.call("missing.list", session_id=SESSION))["missing"]
    assert (listed["missing_id"], listed["question"]) == ("m1", "Who?")
    await world.planner.call("missing.resolve", missing_id="m1", answer="the mate")
    shown = await world.review.call("records.show", record_id="m1", type="missing_context")
    assert shown["record"]["status"] == "resolved"


@pytest.mark.req("AC-04")
async def test_large_content_is_stored_by_reference_and_shown_in_full(world: World) -> None:
    large, tree = "é" * 1_025, {"rows": list(range(1_000))}
    await add(world.planner, item("text", large), item("tree", tree), item("small", "x" * 2_048))
    for name, content, encoded in (
        ("text", large, large.encode()),
        ("tree", tree, str(tree).replace("'", '"').replace(" ", "").encode()),
    ):
        one = await shown(world.analysis, name, with_content=True)
        digest = f"sha256:{hashlib.sha256(encoded).hexdigest()}"
        assert one["content"] == content
        assert (one["record"]["content_mode"], one["record"]["content_ref"]["digest"]) == ("ref", digest)
        assert (one["digest"], one["record"]["byte_size"], "content" in one["record"]) == (digest, len(encoded), False)
        assert "content" not in await shown(world.analysis, name)
    assert (await shown(world.analysis, "small"))["record"] == item("small", "x" * 2_048)
    (again,) = await add(world.planner, item("text", large))
    assert again["known"] is True


async def test_external_content_is_referenced_unchanged(world: World) -> None:
    ref = {"kind": "file", "uri": "file:///report.pdf", "digest": f"sha256:{'1' * 64}"}
    linked = {**item("f", None, content_mode="resource_link", content_ref=ref)}
    del linked["content"]
    await add(world.planner, linked)
    one = await shown(world.planner, "f", with_content=True)
    assert (one["record"], one["digest"], "content" in one) == (linked, ref["digest"], False)


async def test_the_size_of_a_record_is_limited(world: World) -> None:
    with refused("CONTENT_TOO_LARGE") as caught:
        await add(world.planner, envelope("c1", metadata={"x": "y" * 262_144}))
    assert caught.value.context["limit_bytes"] == 262_144
    await add(world.planner, envelope("c1", metadata={"x": "y" * 262_000}))
    for number in (0, 101):
        with refused("INVALID_INPUT_FORMAT"):
            await add(world.planner, *[envelope(f"n{n}") for n in range(number)])
    assert len(await add(world.planner, *[envelope(f"n{n}") for n in range(100)])) == 100


async def test_a_record_is_visible_to_its_audience_and_its_author(world: World) -> None:
    await add(world.analysis, envelope("ours"), readable_by=["subagent:review:*"])
    assert await ids(world.analysis, session_id=SESSION, types=["context_envelope"]) == ["ours"]
    assert await ids(world.review, session_id=SESSION, types=["context_envelope"]) == ["ours"]
    for other in (world.planner, world.admin):
        assert await event_classes(other, session_id=SESSION, types=["context_event"]) == ["context.surface.created"]
        assert await ids(other, session_id=SESSION) == ["session:s1"]
        with refused("RECORD_NOT_FOUND"):
            await shown(other, "ours")
        with refused("RECORD_EXISTS"):
            await add(other, envelope("ours"))


async def test_a_record_without_a_session_is_visible_to_its_author_only(world: World) -> None:
    await add(world.planner, envelope("mine"), session_id=None)
    assert await ids(world.planner, types=["context_envelope"]) == ["mine"]
    for other in (world.admin, world.stranger):
        assert await ids(other, types=["context_envelope"]) == []
    with refused("RECORD_NOT_FOUND"):
        await shown(world.analysis, "mine")


async def test_an_archived_session_accepts_no_records_and_a_deleted_one_keeps_none(world: World) -> None:
    await add(world.planner, envelope("c1"), item("text", "x" * 5_000))
    await world.planner.call("session.archive", session_id=SESSION)
    with refused("SESSION_ARCHIVED"):
        await add(world.planner, envelope("c2"))
    with refused("SESSION_ARCHIVED"):
        await world.planner.call("records.set_lifecycle", record_id="c1", lifecycle="available")
    assert (await shown(world.planner, "c1"))["id"] == "c1"
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    for record_id in ("c1", "text"):
        with refused("RECORD_NOT_FOUND"):
            await shown(world.admin, record_id)
    for table in ("records", "record_items", "record_contents"):
        assert not await world.rows(f"SELECT 1 FROM {table} WHERE tenant = $1", world.tenant)


async def test_a_reader_cannot_add_records(world: World) -> None:
    reader = await world.admin.create_agent("reader", permissions=["read"])
    for operation, raw in (
        ("records.add", {"records": [envelope("c1")]}),
        ("records.set_lifecycle", {"record_id": "c1", "lifecycle": "archived"}),
    ):
        with refused("PERMISSION_DENIED"):
            await reader.call(operation, **raw)
    with refused("SESSION_NOT_FOUND"):
        await add(world.planner, envelope("c1"), session_id="nowhere")


async def set_lifecycle(caller: Caller, record_id: str, lifecycle: str) -> Any:
    return await caller.call("records.set_lifecycle", record_id=record_id, lifecycle=lifecycle)


@pytest.mark.req("AC-03")
async def test_the_lifecycle_of_an_envelope_moves_forward_only(world: World) -> None:
    await add(world.planner, envelope("c1"))
    for before, state in (("draft", "selected"), ("selected", "injected"), ("injected", "archived")):
        answer = await set_lifecycle(world.planner, "c1", state)
        assert (answer["previous"], answer["lifecycle"]) == (before, state)
        assert (await shown(world.planner, "c1"))["record"]["lifecycle"] == state
    with refused("ILLEGAL_TRANSITION") as caught:
        await set_lifecycle(world.planner, "c1", "draft")
    assert caught.value.context == {"lifecycle": "archived", "requested": "draft", "allowed": []}
    events = (await world.analysis.events(session_id=SESSION))["events"][1:]
    assert [event["type"] for event in events] == ["record.added", *["record.changed"] * 3]
    assert [event["data"]["lifecycle"] for event in events] == ["draft", "selected", "injected", "archived"]
    entries = await all_records(world.planner, session_id=SESSION, types=["context_envelope"])
    assert [entry["record"]["lifecycle"] for entry in entries] == ["archived"] * 4


@pytest.mark.req("AC-03")
async def test_only_the_author_and_admins_set_the_lifecycle_state(world: World) -> None:
    await add(world.analysis, envelope("c1"))
    await add(world.analysis, envelope("closed"), readable_by=["subagent:analysis"])
    for other in (world.planner, world.review):
        with refused("PERMISSION_DENIED"):
            await set_lifecycle(other, "c1", "available")
        with refused("RECORD_NOT_FOUND"):
            await set_lifecycle(other, "closed", "available")
    await set_lifecycle(world.analysis, "c1", "available")
    await set_lifecycle(world.admin, "c1", "selected")
    with refused("RECORD_NOT_FOUND"):
        await set_lifecycle(world.admin, "closed", "available")
    with refused("RECORD_NOT_FOUND"):
        await set_lifecycle(world.stranger, "c1", "assembled")


@pytest.mark.req("AC-03")
async def test_another_orchestrator_is_not_the_author(world: World) -> None:
    other = await world.admin.create_agent("second", agent_type="planning")
    await world.planner.admit("second")
    await add(world.planner, envelope("c1"), item("n1", "text"))
    assert (await shown(other, "c1"))["recorded_by"] == "orchestrator:planner"
    with refused("PERMISSION_DENIED"):
        await set_lifecycle(other, "c1", "available")
    with refused("PERMISSION_DENIED"):
        await other.call("records.redact", item_id="n1", state="removed", reason="not mine")
    await set_lifecycle(world.planner, "c1", "available")


@pytest.mark.req("AC-03")
async def test_one_of_concurrent_lifecycle_changes_wins(world: World) -> None:
    other = world.planner.at(await world.another_app())
    for number in range(5):
        await add(world.planner, envelope(f"c{number}"))
        calls = [set_lifecycle(caller, f"c{number}", "selected") for caller in (world.planner, other) * 3]
        outcomes = await asyncio.gather(*map(outcome, calls))
        assert sorted(outcomes) == [*["ILLEGAL_TRANSITION"] * 5, "ok"]


@pytest.mark.req("AC-03")
async def test_lifecycle_states_survive_a_restart(world: World) -> None:
    await add(world.planner, envelope("c1"))
    await set_lifecycle(world.planner, "c1", "compacted")
    later = world.planner.at(await world.another_app())
    assert (await shown(later, "c1"))["record"]["lifecycle"] == "compacted"
    await set_lifecycle(later, "c1", "archived")
