"""Records of operations: listed in log order, and shown by id."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.full_run import examples
from support.records import all_records, correlated_call, envelope, event_classes, ids, record_page
from support.world import SESSION, refused
from weftline.exchange.record_log import list_records
from weftline.history.model import blob_hash
from weftline.kernel.correlation import Correlation
from weftline.records.validation import check_record

if TYPE_CHECKING:
    from support.world import World

SEVERAL = ("one", "two", "three")


@pytest.mark.req("AC-15", part="operations that exist")
async def test_every_version_and_the_deletion_of_a_key_are_items(world: World) -> None:
    for value in SEVERAL[:2]:
        await world.planner.write("goal", value)
    await world.planner.delete("goal")
    await world.planner.write("goal", "three")
    entries = await all_records(world.planner, session_id="s1", types=["context_item"])
    assert [entry["id"] for entry in entries] == [
        "board:s1/goal/1.1",
        "board:s1/goal/1.2",
        "board:s1/goal/1.2/removed",
        "board:s1/goal/2.3",
    ]
    assert [entry["record"].get("content") for entry in entries] == ["one", "two", None, "three"]
    assert entries[0]["digest"] == f"sha256:{blob_hash('one').hex()}"


@pytest.mark.req("AC-15", part="operations that exist")
async def test_records_are_listed_in_log_order(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.analysis.say("done")
    await world.planner.remember("note", [1])
    await world.planner.call(
        "context.push", knowledge=[{"key": "limit", "value": 5, "metadata": {"a": 1}}], if_version=0
    )
    await world.planner.call("context.pull", session_id="s1")
    await world.planner.call("records.add", session_id="s1", records=[envelope("c1")])
    await world.planner.call("session.archive", session_id="s1")
    entries = await all_records(world.planner)
    (pull,) = [entry["id"] for entry in entries if entry["type"] == "context_assembly"]
    assert [(entry["type"], entry["id"]) for entry in entries] == [
        ("context_surface", "session:s1"),
        ("context_item", "board:s1/goal/1.1"),
        ("context_item", "message:s1/1"),
        ("context_item", "memory:planner/note/1.1"),
        ("context_item", "context:planner:learned_knowledge/limit/1.1"),
        ("context_assembly", pull),
        ("context_injection", f"{pull}/injection"),
        ("context_envelope", "c1"),
        ("context_surface", "session:s1"),
    ]
    assert [entry["seq"] for entry in entries] == sorted(entry["seq"] for entry in entries)


@pytest.mark.req("AC-01")
async def test_every_record_that_is_listed_is_valid_and_is_shown_by_its_id(world: World) -> None:
    await world.planner.write("goal", "x" * 3_000)
    await world.planner.write("secret", "mine", readable_by=["orchestrator"])
    await world.analysis.say("hello", visibility="private")
    await world.planner.remember("note", {"a": 1}, session_id="s1")
    await world.admin.call("agent.define", agent_id="planner", role="Plans")
    await world.planner.call("context.push", knowledge=[{"key": "limit", "value": 5}], if_version=1)
    await world.planner.call("context.pull", session_id="s1")
    for caller in (world.planner, world.analysis, world.admin):
        for entry in await all_records(caller, session_id="s1", types=[*ALL_TYPES]):
            check_record(json.dumps(entry["record"]).encode(), entry["type"])
            shown = await caller.call("records.show", record_id=entry["id"])
            assert (shown["type"], shown["record"], shown.get("digest")) == (
                entry["type"],
                entry["record"],
                entry.get("digest"),
            )


@pytest.mark.req("AC-04")
async def test_small_public_content_is_inline_and_other_content_is_a_digest(world: World) -> None:
    large = "x" * 2_049
    await world.planner.write("large", large)
    await world.planner.write("closed", "for few", readable_by=["orchestrator"])
    await world.planner.write("open", "for all")
    records = {entry["id"]: entry["record"] for entry in await all_records(world.planner, session_id="s1")}
    for key, text, sensitivity in (("large", large, "internal"), ("closed", "for few", "restricted")):
        record = records[f"board:s1/{key}/1.1"]
        assert (record["content_mode"], record["sensitivity"]) == ("ref", sensitivity)
        assert record["content_ref"]["digest"] == f"sha256:{blob_hash(text).hex()}"
        assert "content" not in record
        shown = await world.planner.call("records.show", record_id=record["item_id"], with_content=True)
        assert shown["content"] == text
        assert "content" not in await world.planner.call("records.show", record_id=record["item_id"])
    assert records["board:s1/open/1.1"]["content"] == "for all"


@pytest.mark.req("AC-08", part="record types, and pulls")
async def test_a_pull_is_an_assembly_of_versions_and_an_injection_of_their_hash(world: World) -> None:
    await world.admin.call("agent.define", agent_id="planner", role="Plans")
    await world.planner.call("context.push", knowledge=[{"key": "limit", "value": 5}], if_version=1)
    pulled = await world.planner.call("context.pull", session_id="s1")
    records = {entry["type"]: entry["record"] for entry in await all_records(world.planner, session_id="s1")}
    assembly, injection = records["context_assembly"], records["context_injection"]
    assert [block["block_id"] for block in assembly["ordered_blocks"]] == ["definition", "learned_knowledge"]
    assert all(block["content_ref"]["digest"].startswith("sha256:") for block in assembly["ordered_blocks"])
    assert injection["assembly_id"] == assembly["assembly_id"]
    assert (injection["injection_point"], injection["hash"]) == ("runtime_metadata", f"sha256:{pulled['snapshot']}")
    assert await ids(world.analysis, session_id="s1", types=["context_assembly", "context_injection"]) == []


async def test_pushes_rollbacks_and_removals_are_recorded_by_version(world: World) -> None:
    owner = await world.admin.create_agent("owner", agent_type="owner", clearance=4)
    part = "context:owner:learned_knowledge"
    await owner.call("context.push", knowledge=[{"key": "a", "value": 1}, {"key": "b", "value": 2}], if_version=0)
    await owner.call("context.push", knowledge=[{"key": "a", "value": 3}], remove=[{"key": "b"}], if_version=1)
    await owner.call("history.rollback", context_id=part, target_version="1")
    pushed = [f"{part}/{name}" for name in ("a/1.1", "b/1.1", "a/1.2", "b/1.1/removed", "a/1.3", "b/2.1")]
    assert await ids(owner, types=["context_item"]) == pushed
    assert await ids(owner, item_id=f"{part}/b/1.1/removed") == [f"{part}/b/1.1/removed"]


async def test_restored_values_are_recorded_like_writes(world: World) -> None:
    await world.planner.write("a", "1")
    await world.planner.snapshot("mark")
    await world.planner.write("a", "2")
    await world.planner.write("b", "1")
    await world.planner.restore("mark")
    assert (await ids(world.planner, session_id="s1"))[-2:] == ["board:s1/a/1.3", "board:s1/b/1.1/removed"]


async def test_records_of_a_branch_name_it_and_are_deleted_with_it(world: World) -> None:
    await world.planner.write("a", "1")
    for versions in ("2", "1"), ("3", "3"):
        await world.planner.call("history.branch", context_id="board:s1", branch="try")
        await world.planner.write("a", "2", branch="try")
        await world.planner.write("only", "1", branch="try")
        named = [f"board:s1@try/{key}/1.{number}" for key, number in zip(("a", "only"), versions, strict=True)]
        assert (await ids(world.planner, session_id="s1"))[-2:] == named
        world.clock.advance(seconds=1)
        await world.planner.call("history.delete_branch", context_id="board:s1", branch="try", force=True)
        assert await ids(world.planner, session_id="s1") == ["session:s1", "board:s1/a/1.1"]


async def test_records_are_found_by_turn_task_and_tool_call(world: World) -> None:
    await world.planner.write("plain")
    for turn, task, call in (("t1", "a", "c1"), ("t1", "b", "c2"), ("t2", "b", "c3")):
        part = Correlation(turn_id=turn, task_id=task, tool_call_id=call)
        await correlated_call(part, world.planner, "board.write", session_id="s1", key=f"k_{call}", value="x")
    assert await keys(world, turn_id="t1") == ["k_c1", "k_c2"]
    assert await keys(world, task_id="b") == ["k_c2", "k_c3"]
    assert await keys(world, tool_call_id="c3") == ["k_c3"]
    assert await keys(world, turn_id="t1", task_id="b") == ["k_c2"]
    assert await keys(world, turn_id="t3") == []


async def keys(world: World, **which: Any) -> list[str]:
    return [name.split("/")[1] for name in await ids(world.planner, session_id="s1", types=["context_item"], **which)]


async def test_records_are_found_by_author(world: World) -> None:
    await world.planner.write("a")
    await world.analysis.write("b")
    await world.review.write("c")
    for name, found in (
        ("subagent:analysis", ["b"]),
        ("analysis", ["b"]),
        ("review-2", ["c"]),
        ("subagent:review:review-2", ["c"]),
        ("orchestrator:planner", ["a"]),
        ("planner", ["a"]),
        ("nobody", []),
    ):
        assert await keys(world, agent=name) == found, name


async def test_records_are_found_by_time(world: World) -> None:
    start = world.clock.now()
    for key in SEVERAL:
        world.clock.advance(hours=1)
        await world.planner.write(key)

    def hours(number: int) -> str:
        return (start + timedelta(hours=number)).isoformat()

    assert await keys(world, since=hours(2)) == ["two", "three"]
    assert await keys(world, until=hours(2)) == ["one"]
    assert await keys(world, since=hours(2), until=hours(3)) == ["two"]
    assert await keys(world, since=hours(4)) == []
    assert await keys(world, since=f"{start:%Y-%m-%d}", until=f"{start + timedelta(days=1):%Y-%m-%d}") == [*SEVERAL]
    with refused("INVALID_INPUT_FORMAT"):
        await record_page(world.planner, session_id="s1", since=hours(2), until=hours(1))


async def test_an_item_is_found_with_the_records_that_name_it(world: World) -> None:
    for value in SEVERAL:
        await world.planner.write("goal", value)
    await world.planner.say("goal")
    item = "board:s1/goal/1.2"
    await world.planner.call(
        "records.add",
        session_id="s1",
        records=[envelope("c1", item_refs=[item]), envelope("c2", item_refs=["message:s1/1"]), envelope("c3")],
    )
    assert await ids(world.planner, item_id=item) == [item, "c1"]
    assert await ids(world.planner, item_id="message:s1/1") == ["message:s1/1", "c2"]
    assert await ids(world.planner, item_id=item, types=["context_envelope"]) == ["c1"]
    assert await event_classes(world.planner, item_id=item, types=["context_event"]) == ["context.item.updated"]
    assert await ids(world.planner, item_id="board:s1/goal/7.7") == []
    assert await ids(world.planner, session_id="s1", item_id="c1") == []
    shown = await world.planner.call("records.show", record_id=item)
    assert [named["id"] for named in shown["referenced_by"]] == ["c1"]


@pytest.mark.req("AC-13")
async def test_events_are_listed_on_request(world: World) -> None:
    await world.planner.write("goal", "1")
    await world.planner.write("goal", "2")
    await world.planner.delete("goal")
    await world.planner.snapshot("mark")
    asked = {"session_id": "s1", "types": ["context_event"]}
    assert await event_classes(world.planner, **asked) == [
        "context.surface.created",
        "context.item.added",
        "context.item.updated",
        "context.item.removed",
        "context.surface.updated",
    ]
    (first, *_) = await all_records(world.planner, **asked)
    shown = await world.planner.call("records.show", record_id=first["id"])
    assert shown["record"] == first["record"]
    assert "context_event" not in {entry["type"] for entry in await all_records(world.planner, session_id="s1")}


async def test_a_message_is_recorded_again_when_its_visibility_changes(world: World) -> None:
    number = await world.planner.say("psst", visibility="private")
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="public")
    items = await all_records(world.analysis, session_id="s1", types=["context_item"])
    assert [entry["id"] for entry in items] == [f"message:s1/{number}"] * 2
    assert {entry["record"]["content"] for entry in items} == {"psst"}


async def test_pages_have_the_requested_size_and_continue(world: World) -> None:
    await world.planner.call("context.push", knowledge=[{"key": f"k{n}", "value": n} for n in range(7)], if_version=0)
    await world.planner.call("context.pull", session_id="s1")
    whole = await all_records(world.planner)
    for limit in (1, 2, 3, 200):
        assert await all_records(world.planner, limit=limit) == whole
    page = await record_page(world.planner, limit=3)
    assert (page["count"], page["has_more"]) == (3, True)
    last = await record_page(world.planner, limit=3, after=str(whole[-1]["seq"]))
    assert last == {"records": [], "count": 0, "has_more": False, "next_after": None}


async def test_a_page_is_limited_in_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_records, "_MAX_PAGE_BYTES", 3_000)
    records = [envelope(f"c{n}", metadata={"text": "x" * 1_400}) for n in range(6)]
    await world.planner.call("records.add", session_id="s1", records=records)
    page = await record_page(world.planner, session_id="s1", types=["context_envelope"])
    assert [entry["id"] for entry in page["records"]] == ["c0", "c1"]
    assert await ids(world.planner, session_id="s1", types=["context_envelope"]) == [f"c{n}" for n in range(6)]


async def test_rare_records_are_listed_in_short_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_records, "_EVENT_BATCH", 2)
    monkeypatch.setattr(list_records, "_MAX_EVENT_BATCHES", 2)
    monkeypatch.setattr(list_records, "_SCAN_WINDOW", 2)
    for _ in range(9):
        await world.planner.write("goal")
    await world.planner.call("records.add", session_id="s1", records=[envelope("c1")])
    page = await record_page(world.planner, session_id="s1", types=["context_envelope"])
    assert (page["records"], page["has_more"]) == ([], True)
    assert await ids(world.planner, session_id="s1", types=["context_envelope"]) == ["c1"]


@given(
    acts=st.lists(st.sampled_from(["write", "delete", "say", "push", "pull", "add", "branch"]), max_size=12),
    limit=st.integers(1, 5),
)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_pages_of_any_size_list_every_record_once(world: World, acts: list[str], limit: int) -> None:
    session = f"p{await world.last_event()}"
    owner = await world.planner.create_session(session)
    for number, act in enumerate(acts):
        match act:
            case "write" | "delete":
                await owner.write("goal", str(number))
                if act == "delete":
                    await owner.delete("goal")
            case "say":
                await owner.say(str(number))
            case "push":
                await owner.call("context.pull", session_id=session)
                knowledge = [{"key": f"{session}_{number}_{each}", "value": each} for each in range(3)]
                await owner.call("context.push", knowledge=knowledge, session_id=session)
            case "pull":
                await owner.call("context.pull", session_id=session)
            case "add":
                await owner.call("records.add", session_id=session, records=[envelope(f"{session}-{number}")])
            case "branch":
                await owner.call("history.branch", context_id=f"board:{session}", branch=f"b{number}")
                await owner.write("goal", str(number), branch=f"b{number}")
    which = {"session_id": session, "types": [*ALL_TYPES]}
    whole = (await record_page(owner, limit=200, **which))["records"]
    assert await all_records(owner, limit=limit, **which) == whole
    places = [(entry["seq"], entry["type"], entry["id"]) for entry in whole]
    assert len(set(places)) == len(places)


async def test_a_sub_agent_must_name_a_session(world: World) -> None:
    with refused("PERMISSION_DENIED"):
        await record_page(world.analysis)
    assert await ids(world.analysis, session_id="s1") == ["session:s1"]
    with refused("SESSION_NOT_FOUND"):
        await record_page(world.planner, session_id="nowhere")


async def test_unknown_records_are_not_found(world: World) -> None:
    await world.planner.write("goal")
    for record_id in (
        "nothing",
        "board:s1/goal/1.2",
        "board:s1/goal/1.1/removed",
        "board:nowhere/goal/1.1",
        "message:s1/1",
        "memory:planner/a/1.1",
        "session:nowhere",
        "pull:s1/planner/1.1",
        "urn:weftline:0#1",
    ):
        with refused("RECORD_NOT_FOUND"):
            await world.planner.call("records.show", record_id=record_id)
    with refused("RECORD_NOT_FOUND"):
        await world.planner.call("records.show", record_id="board:s1/goal/1.1", type="context_surface")


async def test_an_id_that_several_records_have_needs_their_type(world: World) -> None:
    budget = {"schema_version": "0.1.0", "budget_id": "x", "target": "m", "created_at": "2026-05-08T12:30:00Z"}
    await world.planner.call("records.add", session_id="s1", records=[envelope("x"), budget])
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.call("records.show", record_id="x")
    for kind in ("context_envelope", "context_budget"):
        assert (await world.planner.call("records.show", record_id="x", type=kind))["type"] == kind


async def test_pruned_values_are_recorded_without_content(world: World) -> None:
    owner = await world.planner.create_session("short", keep_versions=1)
    for number in range(20):
        await owner.write("goal", f"value {number}")
    entries = await all_records(owner, session_id="short", types=["context_item"])
    assert len(entries) == 20
    assert entries[-1]["record"]["content"] == "value 19"
    first = entries[0]["record"]
    assert (first["content_mode"], "content" in first) == ("opaque", False)
    assert first["content_ref"]["digest"] == f"sha256:{blob_hash('value 0').hex()}"


async def test_records_survive_a_restart_and_are_visible_in_every_process(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.call("records.add", session_id="s1", records=[envelope("c1")])
    before = await all_records(world.planner, session_id="s1")
    other = await world.another_app()
    assert await all_records(world.planner.at(other), session_id="s1") == before


async def test_imported_records_are_found_independent_of_their_original_commit_numbers(world: World) -> None:
    for value in SEVERAL[:2]:
        await world.planner.write("goal", value)
    for version, commit in ((1, 7), (2, 1)):
        await world.sql(
            "UPDATE events SET data = $1, origin = $2 WHERE tenant = $3 AND subject = $4 AND data LIKE $5",
            msgspec.json.encode({"version": version, "incarnation": 1, "commit": commit}).decode(),
            '{"source":"urn:weftline:elsewhere","id":"9"}',
            world.tenant,
            "goal",
            f'%"version":{version},%',
        )
    items = await all_records(world.planner, session_id="s1", types=["context_item"])
    assert [(entry["id"], entry["record"]["content"]) for entry in items] == [
        ("board:s1/goal/1.1", "one"),
        ("board:s1/goal/1.2", "two"),
    ]


async def test_events_without_an_incarnation_are_listed_as_events_only(world: World) -> None:
    """Events of versions that did not record incarnations."""
    await world.planner.write("goal")
    await world.sql(
        "UPDATE events SET data = $1 WHERE tenant = $2 AND subject = $3", '{"version":1}', world.tenant, "goal"
    )
    assert await ids(world.planner, session_id="s1", types=["context_item"]) == []
    assert len(await event_classes(world.planner, session_id="s1", types=["context_event"])) == 2


ALL_TYPES = (
    "context_surface",
    "context_item",
    "context_assembly",
    "context_injection",
    "context_envelope",
    "context_event",
)


@pytest.mark.req("AC-04")
async def test_own_items_have_language_freshness_and_priority(world: World) -> None:
    await world.planner.write("goal", "The ferry leaves from the east pier.", ttl_seconds=60)
    number = await world.planner.say("Die Fähre ist nicht da und kommt auch nicht.")
    events = [
        {"event_id": "plain", "content": "the tide turns at six and the wind is from the west"},
        {"event_id": "weighed", "content": "x", "importance": 0.9},
        {"event_id": "pinned", "content": "x", "pinned": True},
    ]
    await world.planner.call("context.ingest", session_id=SESSION, events=events)
    names = [f"board:{SESSION}/goal/1.1", f"message:{SESSION}/{number}"]
    names += [f"window:{SESSION}:planner/{each['event_id']}/1.1" for each in events]
    shown = [(await world.planner.call("records.show", record_id=name))["record"] for name in names]
    assert [each["language"] for each in shown][:3] == ["en", "de", "en"]
    assert [each["priority"] for each in shown] == [0.75, 0.5, 0.5, 0.9, 1.0]
    assert all(each["freshness"]["as_of"] == each["created_at"] for each in shown)
    assert [("expires_at" in each["freshness"]) for each in shown] == [True, False, False, False, False]
