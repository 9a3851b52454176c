"""A session's bundle holds its windows, and an import restores them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported, items, records, texts, without_trust
from support.records import AT
from support.world import SESSION

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("AC-14")
LONG = "the crane at pier nine was moved to the east basin. " * 400
LINE = f"window:{SESSION}:planner"


async def fill(planner: Caller) -> None:
    """Fill a window with short and long events, a change, a checkpoint and a branch."""
    await planner.call("window.create", session_id=SESSION, model_max_tokens=64_000, reserved_tokens=1_000)
    said = [{"event_id": f"e{number}", "content": f"berth {number} is free at dawn"} for number in range(40)]
    await planner.call("context.ingest", session_id=SESSION, events=said)
    call = {"call_id": "c1", "name": "berths", "arguments": '{"port":"Odda"}'}
    asked = {"event_id": "asked", "role": "assistant", "content": "", "tool_calls": [call]}
    answered = {"event_id": "answered", "role": "tool", "tool_call_id": "c1", "content": LONG}
    await planner.call("context.ingest", session_id=SESSION, events=[asked, answered])
    await planner.call("window.checkpoint", session_id=SESSION, label="loaded")
    await planner.call("context.ingest", session_id=SESSION, events=[{"event_id": "last", "content": LONG}])


async def shown(caller: Caller) -> list[tuple[Any, ...]]:
    found = (await caller.call("window.events", session_id=SESSION, agent_id="planner", limit=200))["events"]
    return [(each["event_id"], each["role"], each["content"], each["author"], each["at"]) for each in found]


async def moved_to(stranger: Caller, bundle: bytes) -> Any:
    await stranger.create_agent("planner", agent_type="planning", clearance=3)
    return await imported(stranger, bundle)


@pytest.mark.req("AC-17")
async def test_a_bundle_restores_windows_as_they_were(world: World) -> None:
    await fill(world.planner)
    bundle = await exported(world.admin, policy="full")
    events = {name: record for name, record in items(bundle).items() if name.startswith(LINE)}
    assert len(events) == 43
    assert LONG in texts(bundle)[f"{LINE}/last/1.1"]
    report = await moved_to(world.stranger, bundle)
    assert (report.windows, report.versions) == (1, 43)
    assert await shown(world.stranger) == await shown(world.admin)
    again = items(await exported(world.stranger, policy="full"))
    assert {name: without_trust(again[name]) for name in events} == {n: without_trust(events[n]) for n in events}
    assert (await world.stranger.call("history.verify", context_id=LINE))["intact"]
    for caller in (world.admin, world.stranger):
        status = await caller.call("window.show", session_id=SESSION, agent_id="planner")
        assert (status["model_tokens"], status["reserved_tokens"], status["last_number"]) == (64_000, 1_000, 43)
        labels = await caller.call("window.checkpoints", session_id=SESSION, agent_id="planner")
        assert "loaded" in str(labels)


async def test_an_imported_window_goes_on(world: World) -> None:
    await fill(world.planner)
    await moved_to(world.stranger, await exported(world.admin, policy="full"))
    more = {"event_id": "more", "content": "the tide turns at six"}
    await world.stranger.call("context.ingest", session_id=SESSION, agent_id="planner", events=[more])
    assert [each[0] for each in await shown(world.stranger)][-2:] == ["last", "more"]
    restored = await world.stranger.call("window.restore", session_id=SESSION, agent_id="planner", label="loaded")
    assert restored
    assert [each[0] for each in await shown(world.stranger)][-1] == "answered"


@pytest.mark.req("AC-09")
async def test_the_sources_of_a_compaction_are_in_the_bundle(world: World) -> None:
    await fill(world.planner)
    sources = [f"{LINE}/e{number}/1.1" for number in range(40)] + [f"{LINE}/answered/1.1"]
    made = {"compaction_id": "c1", "scope": "session", "source_item_refs": sources, "method": "custom"}
    record = {"schema_version": "0.1.0", "created_at": AT, **made}
    await world.planner.call("records.add", session_id=SESSION, records=[record])
    bundle = await exported(world.planner)
    found = records(bundle, "context_compaction")
    named = {ref for record in found.values() for ref in record["source_item_refs"]}
    assert named
    assert named <= items(bundle).keys()


async def test_a_bundle_without_history_has_the_current_events(world: World) -> None:
    await fill(world.planner)
    bundle = await exported(world.admin, policy="full", history=False)
    await moved_to(world.stranger, bundle)
    assert await shown(world.stranger) == await shown(world.admin)


async def test_nobody_exports_a_window_that_it_may_not_open(world: World) -> None:
    await fill(world.planner)
    assert not [name for name in items(await exported(world.review)) if name.startswith("window:")]


async def test_windows_follow_their_session_to_another_id(world: World) -> None:
    await fill(world.planner)
    bundle = await exported(world.admin, policy="full")
    await imported(world.admin, bundle, session_id="copy")
    there = await world.admin.call("window.events", session_id="copy", agent_id="planner", limit=200)
    assert [each["event_id"] for each in there["events"]] == [each[0] for each in await shown(world.admin)]
