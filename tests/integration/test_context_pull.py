"""A pull gives a session one immutable version of the agent's context, atomically."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.contexts import (
    artifact,
    entries,
    keys,
    knowledge_entry,
    problems,
    pull,
    push,
    read_context,
    stop_at_statement,
    value_of,
)
from support.world import SESSION, outcome, refused

if TYPE_CHECKING:
    from support.world import Caller, World


async def pins(world: World) -> set[tuple[str, int, str]]:
    rows = await world.rows("SELECT line_id, seq, holder FROM pins WHERE tenant = $1", world.tenant)
    return {(line_id, seq, holder) for line_id, seq, holder in rows if holder.startswith("session:")}


async def define(world: World, role: str) -> None:
    await world.admin.call("agent.define", agent_id="planner", role=role)


async def prune(world: World) -> Any:
    return await world.admin.call("history.prune")


@pytest.mark.req("CE-F18")
@pytest.mark.req("CE-U4")
@pytest.mark.req("CE-A")
async def test_a_pull_reports_the_transition_and_the_changes(world: World) -> None:
    await push(
        world.planner, knowledge_entry("kept", 1), knowledge_entry("gone", 1), knowledge_entry("same", 1), if_version=0
    )
    first = await pull(world.planner)
    assert (first["from_version"], first["to_version"]) == (None, 1)
    assert first["message"] == "Context pulled: snapshot v0 -> v1"
    assert keys(first["changes"]["added"]) == ["gone", "kept", "same"]
    await push(
        world.planner, knowledge_entry("kept", 2), knowledge_entry("new", 1), if_version=1, remove=[{"key": "gone"}]
    )
    await define(world, "Plans")
    second = await pull(world.planner)
    assert second["message"] == "Context pulled: snapshot v1 -> v3"
    changes = second["changes"]
    assert [(each["memory_type"], each["key"]) for each in changes["added"]] == [
        ("definition", "role"),
        ("learned_knowledge", "new"),
    ]
    assert [(each["key"], each["from_version"]) for each in changes["removed"]] == [("gone", 1)]
    assert [(e["key"], e["from_version"], e["to_version"]) for e in changes["modified"]] == [("kept", 1, 2)]
    assert second["context"]["role"] == "Plans"
    third = await pull(world.planner)
    assert third["message"] == "Context pulled: snapshot v3 -> v3"
    assert third["snapshot"] == second["snapshot"]
    assert third["changes"] == {"added": [], "removed": [], "modified": [], "has_more": False}


@pytest.mark.req("CE-F16")
@pytest.mark.req("CE-E", part="a parent's edit during a session")
async def test_a_session_keeps_its_snapshot_during_edits_and_pushes(world: World) -> None:
    await define(world, "Plans")
    await push(world.planner, knowledge_entry("a", 1), if_version=1)
    other = await world.planner.create_session("other")
    before = await pull(world.planner)
    seen = await read_context(world.planner)
    await define(world, "Reviews")
    await pull(other)
    await push(other, knowledge_entry("a", 2), session_id="other")
    assert await read_context(world.planner) == seen
    assert (seen["definition"]["role"], await value_of(world.planner, "a")) == ("Plans", 1)
    after = await pull(world.planner)
    assert (before["to_version"], after["from_version"], after["to_version"]) == (2, 2, 4)
    assert (after["context"]["role"], entries(after)) == ("Reviews", {"a": 2})
    assert (await read_context(other))["version"] == 3


@pytest.mark.req("CE-E", part="a parent's edit during a session")
async def test_a_child_keeps_its_snapshot_until_it_pulls_again(world: World) -> None:
    define_child = {"agent_id": "analysis", "role": "Reads"}
    await world.planner.call("agent.define", **define_child)
    await pull(world.analysis)
    before = await read_context(world.analysis)
    await world.planner.call("agent.define", **{**define_child, "role": "Writes"})
    assert await read_context(world.analysis) == before
    later = world.analysis.in_session((await world.planner.create_session("later")).session)
    assert (await pull(later))["context"]["role"] == "Writes"
    assert await read_context(world.analysis) == before
    assert (await pull(world.analysis))["context"]["role"] == "Writes"


@pytest.mark.req("CE-U4")
@pytest.mark.req("CE-F18")
async def test_a_pull_replaces_the_previous_snapshot(world: World) -> None:
    await push(world.planner, knowledge_entry("a", 1), if_version=0)
    await pull(world.planner)
    await push(world.planner, knowledge_entry("a", 2), if_version=1)
    await pull(world.planner)
    holder = f"session:{SESSION}:planner"
    assert await pins(world) == {("context:planner", 2, holder), ("context:planner:learned_knowledge", 2, holder)}
    rows = await world.rows("SELECT version, known FROM context_snapshots WHERE tenant = $1", world.tenant)
    assert [tuple(row) for row in rows] == [(2, 2)]


@pytest.mark.req("CE-E", part="a pull after a write elsewhere")
async def test_a_pull_reads_what_another_process_has_just_pushed(world: World) -> None:
    second = world.planner.at(await world.another_app())
    for version in range(5):
        await push(second, knowledge_entry("a", version), if_version=version)
        pulled = await pull(world.planner)
        assert (pulled["to_version"], entries(pulled)) == (version + 1, {"a": version})


@pytest.mark.req("CE-U4")
@pytest.mark.req("CE-E", part="a pull after a write elsewhere")
async def test_concurrent_pulls_and_pushes_see_whole_versions(world: World) -> None:
    second = await world.another_app()
    both = [knowledge_entry("a", 0), knowledge_entry("b", 0, memory_type="team_preferences")]
    await push(world.planner, *both, if_version=0)

    async def pushing() -> None:
        for version in range(1, 15):
            changed = [knowledge_entry("a", version), knowledge_entry("b", version, memory_type="team_preferences")]
            await push(world.planner, *changed, if_version=version)

    async def pulling(caller: Caller) -> None:
        for _ in range(10):
            pulled = await pull(caller)
            assert set(entries(pulled).values()) == {pulled["to_version"] - 1}
            assert await value_of(caller, "a") == pulled["to_version"] - 1

    await asyncio.gather(pushing(), pulling(world.planner.at(second)))


@pytest.mark.req("CE-U4")
@pytest.mark.req("CE-F16")
async def test_a_crashed_pull_leaves_the_old_or_the_new_snapshot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await push(world.planner, knowledge_entry("a", 1), artifact("old", 1), if_version=0)
    world.clock.advance(days=89)
    await pull(world.planner)
    await push(
        world.planner, knowledge_entry("a", 2), knowledge_entry("b", 1, memory_type="team_preferences"), if_version=1
    )
    await define(world, "Plans")
    world.clock.advance(days=2)
    old, old_pins = await read_context(world.planner), await pins(world)
    for number in range(1, 500):
        with stop_at_statement(world, monkeypatch, number) as ran:
            result = await outcome(pull(world.planner))
        if len(ran) < number:
            break
        assert result == "INTERNAL_ERROR"
        assert (await read_context(world.planner), await pins(world)) == (old, old_pins), ran[-1]
    assert result == "ok"
    assert number > 25
    new = await read_context(world.planner)
    assert (new["version"], [entry["key"] for entry in new["entries"]]) == (4, ["a", "b"])
    assert {pin[1] for pin in await pins(world) if pin[0] == "context:planner"} == {4}
    assert await problems(world) == []


@pytest.mark.req("CE-F3")
@pytest.mark.req("CE-F57")
async def test_an_expired_entry_is_hidden_at_once_but_stays_in_snapshots(world: World) -> None:
    await push(
        world.planner, knowledge_entry("fact", 1), artifact("report", "long", metadata={"by": "me"}), if_version=0
    )
    world.clock.advance(days=89, hours=23)
    await pull(world.planner)
    world.clock.advance(hours=1)
    assert await value_of(world.planner, "report", memory_type="work_artifacts") == "long"
    later = await world.planner.create_session("later")
    pulled = await pull(later)
    assert entries(pulled) == {"fact": 1}
    with refused("CONTEXT_KEY_NOT_FOUND"):
        await read_context(later, key="report", memory_type="work_artifacts")
    state = await world.planner.call("history.state", context_id="context:planner:work_artifacts", version="1")
    assert [(entry["key"], entry["value"]) for entry in state["entries"]] == [("report", None)]
    await prune(world)
    assert await value_of(world.planner, "report", memory_type="work_artifacts") == "long"
    await push(world.planner, artifact("report", "long"), if_version=pulled["to_version"])
    assert entries(await pull(later)) == {"fact": 1, "report": None}
    assert await problems(world) == []


@pytest.mark.req("CE-F3")
async def test_of_the_four_memory_types_only_work_artifacts_expire(world: World) -> None:
    await push(
        world.planner,
        knowledge_entry("talk", 1, memory_type="conversation_context", workflow_id="launch"),
        knowledge_entry("fact", 1),
        knowledge_entry("style", 1, memory_type="team_preferences"),
        artifact("report", "long"),
        if_version=0,
    )
    world.clock.advance(days=91)
    memory = (await pull(world.planner))["context"]["memory"]
    kept = {name: [entry["key"] for entry in listed] for name, listed in memory.items() if listed}
    assert kept == {"conversation_context": ["talk"], "learned_knowledge": ["fact"], "team_preferences": ["style"]}


@pytest.mark.req("CE-F57")
async def test_retention_is_set_per_memory_type_and_overridden_per_line(world: World) -> None:
    keep = {"learned_knowledge": 30, "work_artifacts": "indefinite", "context:planner:team_preferences": 30}
    for caller in (world.planner, world.analysis):
        preference = knowledge_entry("p", 1, memory_type="team_preferences")
        await push(caller, knowledge_entry("a", 1), preference, artifact("w", 1), if_version=0)
    for subject, days in keep.items():
        await world.admin.call("history.set_retention", subject=subject, days=days)
    world.clock.advance(days=30)
    assert list(entries(await pull(world.planner))) == ["w"]
    assert list(entries(await pull(world.analysis))) == ["p", "w"]
    world.clock.advance(days=1_000)
    assert list(entries(await pull(world.analysis))) == ["p", "w"]
    assert (await world.analysis.call("context.status"))["used_bytes"] == 4


@pytest.mark.req("CE-F57")
async def test_pruning_keeps_values_of_pulled_and_tagged_versions(world: World) -> None:
    await world.admin.call("history.set_retention", subject="learned_knowledge", days="indefinite", versions=1)
    await world.admin.call("history.set_retention", subject="agent", days="indefinite", versions=1)
    await define(world, "First")
    await push(world.planner, knowledge_entry("a", 1), if_version=1)
    await pull(world.planner)
    await push(world.planner, knowledge_entry("a", 2), if_version=2)
    await world.admin.call("history.snapshot", context_id="context:planner", label="named")
    await world.planner.call("history.branch", context_id="context:planner", branch="try")
    for version in range(3, 8):
        await push(world.planner, knowledge_entry("a", version), if_version=version)
    await define(world, "Second")
    await prune(world)
    assert await value_of(world.planner, "a") == 1
    assert (await read_context(world.planner))["definition"]["role"] == "First"
    assert entries(await pull(world.planner, branch="try")) == {"a": 2}
    await pull(world.planner)
    await world.admin.call("history.rollback", context_id="context:planner", target_version="named")
    assert entries(await pull(world.planner)) == {"a": 2}
    await prune(world)
    gone = await world.planner.call("history.state", context_id="context:planner:learned_knowledge", version="1")
    assert [entry["value"] for entry in gone["entries"]] == [None]
    assert await problems(world) == []


async def test_a_deleted_session_releases_its_snapshot(world: World) -> None:
    await push(world.planner, knowledge_entry("a", 1), if_version=0)
    await pull(world.planner)
    await world.planner.create_session("other")
    await pull(world.planner.in_session("other"))
    await world.planner.call("session.delete", session_id=SESSION, force=True)
    assert {holder for _, _, holder in await pins(world)} == {"session:other:planner"}
    rows = await world.rows("SELECT session_id FROM context_snapshots WHERE tenant = $1", world.tenant)
    assert [row[0] for row in rows] == ["other"]


async def test_reading_before_a_pull_is_refused(world: World) -> None:
    with refused("CONTEXT_NOT_PULLED"):
        await read_context(world.planner)
    with refused("SESSION_NOT_FOUND"):
        await pull(world.planner.in_session("nowhere"))
    await pull(world.planner)
    await world.planner.call("session.archive", session_id=SESSION)
    with refused("SESSION_ARCHIVED"):
        await pull(world.planner)
    assert (await read_context(world.planner))["version"] == 0


async def test_a_snapshot_is_read_page_by_page(world: World) -> None:
    conversations = [
        knowledge_entry(f"c{n}", n, memory_type="conversation_context", workflow_id=workflow)
        for workflow in "xy"
        for n in (1, 2)
    ]
    facts = [knowledge_entry(f"f{n}", n) for n in range(5)]
    await push(world.planner, *conversations, *facts, if_version=0)
    await pull(world.planner)
    found, cursor = [], None
    while True:
        page = await read_context(world.planner, limit=2, cursor=cursor)
        found += [(entry.get("workflow_id"), entry["key"]) for entry in page["entries"]]
        assert page["count"] == len(page["entries"]) <= 2
        cursor = page["next_cursor"]
        if not page["has_more"]:
            break
    assert found == [
        *[(workflow, f"c{n}") for workflow in "xy" for n in (1, 2)],
        *[(None, f"f{n}") for n in range(5)],
    ]
    of_y = await read_context(world.planner, memory_type="conversation_context", workflow_id="y")
    assert keys(of_y["entries"]) == ["c1", "c2"]
    assert await value_of(world.planner, "c2", memory_type="conversation_context", workflow_id="x") == 2
    with refused("CONTEXT_KEY_NOT_FOUND") as caught:
        await read_context(world.planner, key="f9")
    assert "f0" in caught.value.context["available_alternatives"]
    for key in ("a b", "../f0", "f0\x00", "f0#metadata", "\ud800", "role"):
        with refused("CONTEXT_KEY_NOT_FOUND"):
            await read_context(world.planner, key=key)
    for nowhere in ({"workflow_id": "x"}, {"memory_type": "conversation_context"}):
        with refused("CONTEXT_KEY_NOT_FOUND"):
            await read_context(world.planner, key="f0", **nowhere)
    assert (await read_context(world.planner, memory_type="learned_knowledge", workflow_id="x"))["entries"] == []
    for wrong in ({"cursor": "nonsense"}, {"memory_type": "definition"}, {"limit": 0}):
        with refused("INVALID_INPUT_FORMAT"):
            await read_context(world.planner, **wrong)


async def test_a_response_is_bounded_and_names_where_the_rest_is(world: World) -> None:
    large = [knowledge_entry(f"k{n:02}", "x" * 30_000) for n in range(20)]
    await push(world.planner, *large, if_version=0)
    listed = (await pull(world.planner))["context"]["memory"]["learned_knowledge"]
    shown = [entry["key"] for entry in listed if "value" in entry]
    assert shown == [f"k{n:02}" for n in range(8)]
    assert all(entry.get("truncated", False) == (entry["key"] not in shown) for entry in listed)
    assert listed[19]["size"] == 30_002
    assert await value_of(world.planner, "k19") == "x" * 30_000
    many = [[knowledge_entry(f"m{page}.{n}", n) for n in range(200)] for page in range(6)]
    for version, items in enumerate(many, start=1):
        await push(world.planner, *items, if_version=version)
    pulled = await pull(world.planner)
    assert len(pulled["context"]["memory"]["learned_knowledge"]) == 1_000
    assert (pulled["context"]["has_more"], pulled["changes"]["has_more"]) == (True, True)


async def test_only_the_agent_receives_the_event_of_its_pull(world: World) -> None:
    await push(world.planner, knowledge_entry("a", 1), if_version=0)
    await pull(world.planner)
    for other, where in ((world.analysis, {"session_id": SESSION}), (world.admin, {}), (world.stranger, {})):
        event_types = {event["type"] for event in (await other.events(**where))["events"]}
        assert not event_types & {"context.pulled", "context.pushed"}
    mine = {event["type"]: event for event in (await world.planner.events())["events"]}
    assert mine["context.pulled"]["data"]["version"] == 1
    assert mine["context.pulled"]["session_id"] == SESSION


@pytest.mark.req("CE-F18")
async def test_a_session_keeps_a_snapshot_pulled_from_an_unchanged_branch(world: World) -> None:
    await push(world.planner, knowledge_entry("a", 1), if_version=0)
    await world.planner.call("history.branch", context_id="context:planner", branch="b")
    await pull(world.planner, branch="b")
    await push(world.planner, knowledge_entry("a", 2), if_version=1)
    await world.planner.call("history.delete_branch", context_id="context:planner", branch="b")
    assert ((await read_context(world.planner))["version"], await value_of(world.planner, "a")) == (1, 1)


async def test_a_pull_of_a_deleted_branch_is_not_used_for_its_recreated_namesake(world: World) -> None:
    async def create_branch() -> None:
        await world.planner.call("history.branch", context_id="context:planner", branch="b")

    await push(world.planner, knowledge_entry("a", 1), knowledge_entry("same", 1), if_version=0)
    await create_branch()
    await pull(world.planner, branch="b")
    await push(world.planner, knowledge_entry("a", "first"), session_id=SESSION, branch="b")
    await world.planner.call("history.delete_branch", context_id="context:planner", branch="b", force=True)
    await create_branch()
    await push(world.planner, knowledge_entry("a", "second"), if_version=1, branch="b")
    with refused("INVALID_INPUT_FORMAT"):
        await push(world.planner, knowledge_entry("a", "third"), session_id=SESSION, branch="b")
    status = await world.planner.call("context.status", session_id=SESSION, branch="b")
    assert (status["version"], status["known_version"]) == (2, None)
    await pull(world.planner, branch="b")
    await push(world.planner, knowledge_entry("a", "third"), session_id=SESSION, branch="b")
    await world.planner.call("history.delete_branch", context_id="context:planner", branch="b", force=True)
    await create_branch()
    await push(world.planner, knowledge_entry("a", "fourth"), if_version=1, branch="b")
    await push(world.planner, knowledge_entry("other", 1), if_version=2, branch="b")
    pulled = await pull(world.planner, branch="b")
    assert keys(pulled["changes"]["added"]) == ["a", "other", "same"]
    assert pulled["changes"]["modified"] == pulled["changes"]["removed"] == []


async def test_pruned_values_are_reported_as_not_kept(world: World) -> None:
    for memory_type in ("learned_knowledge", "work_artifacts"):
        await world.admin.call("history.set_retention", subject=memory_type, days="indefinite", versions=1)
    for version, value in enumerate(("old", "new")):
        await push(world.planner, knowledge_entry("k", value), artifact("a", value), if_version=version)
    await world.admin.call("history.prune")
    await world.planner.call("history.branch", context_id="context:planner", branch="b", from_version="1")
    pulled = await pull(world.planner, branch="b")
    listed = [entry for part in pulled["context"]["memory"].values() for entry in part]
    assert [(entry["key"], entry["pruned"], "value" in entry) for entry in listed] == [
        ("k", True, False),
        ("a", True, False),
    ]
    for key, memory_type in (("k", "learned_knowledge"), ("a", "work_artifacts")):
        (entry,) = (await read_context(world.planner, key=key, memory_type=memory_type))["entries"]
        assert (entry["pruned"], "value" in entry, "truncated" in entry) == (True, False, False)


async def test_metadata_counts_toward_the_response_limit(world: World) -> None:
    about = {"m": "x" * 50_000}
    await push(world.planner, *(knowledge_entry(f"k{number}", 1, metadata=about) for number in range(10)), if_version=0)
    listed = (await pull(world.planner))["context"]["memory"]["learned_knowledge"]
    assert [("metadata" in entry, entry.get("truncated", False)) for entry in listed] == [
        *[(True, False)] * 5,
        *[(False, True)] * 5,
    ]
    (entry,) = (await read_context(world.planner, key="k9"))["entries"]
    assert (entry["metadata"], entry["value"], "truncated" in entry) == (about, 1, False)


async def test_ancestors_receive_no_events_of_an_agents_pushes_and_pulls(world: World) -> None:
    await push(world.analysis, knowledge_entry("a", 1), if_version=0, session_id=SESSION)
    await pull(world.analysis)
    for other, where in ((world.planner, {}), (world.planner, {"session_id": SESSION}), (world.admin, {})):
        event_types = {event["type"] for event in (await other.events(**where))["events"]}
        assert not event_types & {"context.pulled", "context.pushed"}
    events = (await world.analysis.events(session_id=SESSION))["events"]
    mine = [event["type"] for event in events if event["type"].startswith("context.")]
    assert mine == ["context.pushed", "context.pulled"]
