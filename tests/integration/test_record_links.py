"""Links between records: events to items, items to sources, searches to selections and budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, records
from support.records import all_records, ids
from support.world import SESSION, refused

if TYPE_CHECKING:
    from support.world import Caller, World

EVENTS = {"types": ["context_event"]}


async def event_records(caller: Caller, **which: Any) -> list[dict[str, Any]]:
    return [entry["record"] for entry in await all_records(caller, **EVENTS, **which)]


async def shown(caller: Caller, record_id: str) -> Any:
    return (await caller.call("records.show", record_id=record_id))["record"]


def pushed(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (event["event_type"], *(event["data"][name] for name in ("added", "updated", "removed")))
        for event in events
        if event["data"]["type"] == "context.pushed"
    ]


@pytest.mark.req("AC-13")
async def test_an_event_references_its_records(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.delete("goal")
    await world.planner.say("hello")
    await world.planner.snapshot("mark")
    joined = [
        (event["data"]["type"], event["subject"], event["data"].get("item_id"), event["data"].get("surface_id"))
        for event in await event_records(world.planner, session_id=SESSION)
    ]
    assert joined == [
        ("session.created", "s1", None, "session:s1"),
        ("board.written", "goal", "board:s1/goal/1.1", None),
        ("board.deleted", "goal", "board:s1/goal/1.1/removed", None),
        ("message.added", "1", "message:s1/1", None),
        ("board.snapshot", "mark", None, "session:s1"),
    ]
    for *_, item_id, surface_id in joined:
        assert await shown(world.planner, item_id or surface_id)
    in_bundle = records(await exported(world.planner), "context_event").values()
    assert {event["data"].get("item_id") for event in in_bundle} > {"board:s1/goal/1.1", "message:s1/1"}


@pytest.mark.req("AC-13")
async def test_an_event_references_its_record_by_the_field_of_its_type(world: World) -> None:
    gap = await world.planner.call("missing.report", session_id=SESSION, question="Who decides?")
    await world.planner.call("memory.set", key="k", value=1)
    await world.planner.call("context.push", knowledge=[{"key": "k", "value": 1}], if_version=0)
    await world.planner.call("context.pull", session_id=SESSION)
    data: dict[str, Any] = {}
    for event in await event_records(world.planner):
        data |= event["data"]
    assert data["missing_id"] == gap["missing_id"]
    for name in ("item_id", "assembly_id", "injection_id"):
        assert await shown(world.planner, data[name])
    assert data["item_id"] == "memory:planner/k/1.1"
    assert data["injection_id"] == f"{data['assembly_id']}/injection"


@pytest.mark.req("AC-13")
async def test_the_event_class_of_a_push_depends_on_its_changes(world: World) -> None:
    async def push(version: int, knowledge: dict[str, int], *gone: str) -> None:
        given = [{"key": key, "value": value} for key, value in knowledge.items()]
        removed = [{"key": key} for key in gone]
        await world.planner.call("context.push", knowledge=given, remove=removed, if_version=version)

    await push(0, {"a": 1, "b": 1})
    await push(1, {"a": 2})
    await push(2, {"c": 1}, "a")
    await push(3, {}, "b", "c")
    await push(4, {"b": 1})
    await world.admin.call("context.copy", agent_id="analysis", from_agent_id="planner")
    assert pushed(await event_records(world.planner)) == [
        ("context.item.added", 2, 0, 0),
        ("context.item.updated", 0, 1, 0),
        ("context.item.updated", 1, 0, 1),
        ("context.item.removed", 0, 0, 2),
        ("context.item.added", 1, 0, 0),
    ]
    assert pushed(await event_records(world.analysis, session_id=SESSION)) == []
    assert pushed(await event_records(world.admin)) == [("context.item.added", 1, 0, 0)]


@pytest.mark.req("AC-05")
async def test_the_sources_of_items_are_records(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.call("history.branch", context_id=f"board:{SESSION}", branch="b")
    await world.planner.write("goal", "later", branch="b")
    await world.planner.say("hello")
    await world.planner.call("memory.set", key="k", value=1)
    await world.planner.call("context.push", knowledge=[{"key": "k", "value": 1}], if_version=0)
    await world.admin.call("agent.define", agent_id="planner", role="Plans")
    entries = await all_records(world.planner, types=["context_item"])
    sources = {source: entry["id"] for entry in entries for source in entry["record"]["source_refs"]}
    assert set(sources) == {
        "board://s1",
        "session://s1",
        "agent://planner/memory",
        "agent://planner/context",
        "agent://planner/agent",
    }
    for source in sources:
        record = await shown(world.planner, source)
        assert (record["source_id"], record["uri"]) == (source, source)
        with refused("RECORD_NOT_FOUND"):
            await shown(world.stranger, source)
    for private in ("agent://planner/memory", "agent://planner/context"):
        with refused("RECORD_NOT_FOUND"):
            await shown(world.admin, private)
    in_bundle = records(await exported(world.planner), "context_source_ref")
    assert {source_id for _, source_id in in_bundle} >= {"board://s1", "session://s1"}
    with refused("INVALID_INPUT_FORMAT"):
        own = {"schema_version": "0.1.0", "source_id": "board://s1", "uri": "board://s1", "source_kind": "x"}
        await world.planner.call("records.add", session_id=SESSION, records=[own])


@pytest.mark.req("AC-05")
async def test_a_uri_is_resolved_without_a_record(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.say("hello")

    async def resolved(address: str, **more: Any) -> tuple[Any, ...]:
        answer = await world.analysis.call("records.resolve", source_id=address, **more)
        return answer["outcome"], answer.get("text")

    for address in ("board://s1/goal", "board://s1/goal?version=1", "board:s1/goal/1.1"):
        assert await resolved(address) == ("exact", "ship")
    for address in ("session://s1#message-1", "message:s1/1"):
        assert await resolved(address) == ("exact", "hello")
    assert await resolved("board://s1/goal", against="ship") == ("exact", "ship")
    assert (await resolved("board://s1/goal", against="shipped"))[0] == "lost"
    assert await resolved("board://s1/none") == ("lost", None)
    assert await resolved("board://s1") == ("lost", None)
    with refused("RECORD_NOT_FOUND"):
        await resolved("limit")


@pytest.mark.req("AC-04")
async def test_content_of_a_human_has_trust_level_human(world: World) -> None:
    for caller in (world.admin, world.planner):
        await caller.write("goal", "ship")
        await caller.say("hello")
    found = await all_records(world.planner, session_id=SESSION, types=["context_item"])
    trust_and_author = [
        (entry["record"]["trust_level"], entry["record"]["metadata"]["weftline"]["author"]) for entry in found
    ]
    assert trust_and_author == [*[("human", "human:admin")] * 2, *[("agent", "orchestrator:planner")] * 2]
    prov = await exported(world.admin, format="prov")
    assert b'"weftline:agent/human%3Aadmin"' in prov
    assert b'"weftline:agent/admin"' not in prov
    assert "null" not in str([entry["record"] for entry in found])


@pytest.mark.req("AC-06", part="selections of searches and of frameworks")
@pytest.mark.req("AC-07", part="record types and their fields; the budget of a search")
async def test_a_search_is_recorded_on_request(world: World) -> None:
    for number in range(4):
        await world.planner.say(f"The release is planned for week {number}.")
    await world.planner.say("A release party needs cake.")
    before = await world.last_event()
    plain = await world.planner.search("release planned", limit=3, fuzzy_threshold=80.0)
    assert "selection_id" not in plain
    assert await world.last_event() == before
    answer = await world.planner.search("release planned", limit=3, fuzzy_threshold=80.0, record=True)
    assert answer["results"] == plain["results"]
    selection = await shown(world.review, answer["selection_id"])
    taken = [f"message:{SESSION}/{result['message']['id']}" for result in answer["results"]]
    assert selection["selected_item_refs"] == taken
    left = {omitted["item_ref"]: omitted["reason"] for omitted in selection["omitted_item_refs"]}
    assert left == {f"message:{SESSION}/1": "budget", f"message:{SESSION}/5": "low_relevance"}
    budget = await shown(world.review, selection["budget_ref"])
    assert (budget["max_items"], budget["actual_items"]) == (3, 3)
    events = (await event_records(world.review, session_id=SESSION))[-3:]
    assert [event["event_type"] for event in events] == [
        "context.selection.started",
        "context.budget.applied",
        "context.selection.completed",
    ]
    assert events[0]["data"]["selection_id"] == events[2]["data"]["selection_id"] == answer["selection_id"]
    of_types = ["context_selection", "context_budget"]
    assert await ids(world.review, session_id=SESSION, types=of_types) == [budget["budget_id"], answer["selection_id"]]


async def test_a_search_over_private_content_is_recorded_for_its_caller_only(world: World) -> None:
    await world.planner.say("The release is planned.", visibility="private")
    answer = await world.planner.search("release planned", record=True)
    assert await shown(world.planner, answer["selection_id"])
    for other in (world.review, world.admin):
        with refused("RECORD_NOT_FOUND"):
            await shown(other, answer["selection_id"])


async def test_a_search_is_recorded_only_with_write_access(world: World) -> None:
    reader = await world.admin.create_agent("reader", permissions=["read"])
    await world.planner.admit("reader")
    await reader.search("anything")
    with refused("PERMISSION_DENIED"):
        await reader.search("anything", record=True)
    await world.planner.call("session.archive", session_id=SESSION)
    with refused("SESSION_ARCHIVED"):
        await world.planner.search("anything", record=True)
