"""History of windows: log, diff, rollback, branches and merges; checkpoints across agents; autosave."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from support.windows import contents, create, ingest, message, window_events
from support.world import SESSION, Caller, World, outcome, refused
from weftline.jobs.windows import AUTOSAVE, AUTOSAVE_SECONDS

LINE = f"window:{SESSION}:analysis"


async def checkpoint(caller: Caller, label: str, **which: Any) -> Any:
    return await caller.call("window.checkpoint", session_id=SESSION, label=label, **which)


async def restore(caller: Caller, label: str, **which: Any) -> Any:
    return await caller.call("window.restore", session_id=SESSION, label=label, **which)


async def checkpoints(caller: Caller, **which: Any) -> dict[str, list[str]]:
    answer = await caller.call("window.checkpoints", session_id=SESSION, **which)
    return {each["label"]: [window["agent_id"] for window in each["windows"]] for each in answer["checkpoints"]}


async def autosave(world: World) -> None:
    await world.app.scheduler.drain(AUTOSAVE)


async def test_the_log_and_the_difference_of_versions_name_events(world: World) -> None:
    await ingest(world.analysis, message("a", "one"))
    await ingest(world.analysis, message("b", "two"), message("c", "three " * 1_000))
    log = await world.analysis.call("history.log", context_id=LINE)
    assert [commit["version"] for commit in log["commits"]] == [2, 1]
    diff = await world.planner.call("history.diff", context_id=LINE, from_version=1, to_version=2)
    assert [change["key"] for change in diff["added"]] == ["b", "c"]
    state = await world.planner.call("history.state", context_id=LINE, version=1)
    assert [entry["key"] for entry in state["entries"]] == ["a"]


async def test_a_rollback_returns_to_earlier_events_and_numbers_go_on(world: World) -> None:
    await ingest(world.analysis, message("a", "one"))
    await ingest(world.analysis, message("b", "two"), message("long", "three " * 1_000))
    await world.planner.call("history.rollback", context_id=LINE, target_version=1)
    assert await contents(world.analysis) == ["one"]
    added = await ingest(world.analysis, message("b", "another two"))
    assert (added["events"][0]["number"], added["events"][0]["added"]) == (4, True)
    assert await contents(world.analysis) == ["one", "another two"]
    await world.planner.call("history.rollback", context_id=LINE, target_version=2)
    assert await contents(world.analysis) == ["one", "two", "three " * 1_000]
    assert (await world.planner.call("history.verify", context_id=LINE))["intact"] is True


@pytest.mark.req("CE-U5")
@pytest.mark.req("CE-F22")
async def test_a_cleared_human_sees_and_rolls_back_the_conversations_below(world: World) -> None:
    lead = await world.admin.create_agent("lead", kind="human", clearance=3, permissions=["read", "write"])
    trainee = await world.admin.create_agent("trainee", kind="human", clearance=2, permissions=["read", "write"])
    peer = await world.admin.create_agent("peer", kind="human", clearance=3, permissions=["read", "write"])
    scribe = await world.admin.create_agent("scribe", parent_id="lead")
    novice = await world.admin.create_agent("novice", parent_id="trainee")
    expert = await world.admin.create_agent("expert", parent_id="lead", clearance=4)
    for agent, name in ((scribe, "scribe"), (novice, "novice"), (expert, "expert")):
        await agent.create_session(f"of-{name}")
        for event_id in ("first", "second"):
            await agent.call("context.ingest", session_id=f"of-{name}", events=[message(event_id, event_id)])
    line = {"context_id": "window:of-scribe:scribe"}
    assert [commit["version"] for commit in (await lead.call("history.log", **line))["commits"]] == [2, 1]
    shown = await lead.call("window.events", session_id="of-scribe", agent_id="scribe")
    assert [event["content"] for event in shown["events"]] == ["first", "second"]
    await lead.call("history.rollback", **line, target_version="1", reason="a wrong turn")
    assert (await scribe.call("window.events", session_id="of-scribe"))["total_count"] == 1
    # Those above the creator of a session may know that it exists.
    for caller, name, code in (
        (trainee, "novice", "NOT_A_MEMBER"),
        (lead, "expert", "NOT_A_MEMBER"),
        (peer, "scribe", "SESSION_NOT_FOUND"),
        (lead, "novice", "SESSION_NOT_FOUND"),
    ):
        other = f"window:of-{name}:{name}"
        with refused("CONTEXT_NOT_FOUND"):
            await caller.call("history.log", context_id=other)
        with refused(code):
            await caller.call("window.events", session_id=f"of-{name}", agent_id=name)
    for call, fields in (
        ("session.get", {}),
        ("board.list_keys", {}),
        ("context.ingest", {"agent_id": "scribe", "events": [message("x", "x")]}),
    ):
        with refused("NOT_A_MEMBER"):
            await lead.call(call, session_id="of-scribe", **fields)


async def test_a_branch_continues_separately_and_is_merged(world: World) -> None:
    await ingest(world.analysis, message("a", "one"))
    await world.analysis.call("history.branch", context_id=LINE, branch="try")
    await world.analysis.call("history.switch", context_id=LINE, branch="try")
    await ingest(world.analysis, message("b", "on the branch"))
    assert await contents(world.analysis) == ["one", "on the branch"]
    await world.analysis.call("history.switch", context_id=LINE)
    assert await contents(world.analysis) == ["one"]
    await ingest(world.analysis, message("c", "on main"))
    await world.planner.call("history.merge", context_id=LINE, from_context_id=f"{LINE}@try")
    assert sorted(await contents(world.analysis)) == ["on main", "on the branch", "one"]


async def test_a_new_window_begins_on_its_main_line(world: World) -> None:
    await ingest(world.analysis, message("a", "one"))
    await world.analysis.call("history.branch", context_id=LINE, branch="try")
    await world.analysis.call("history.switch", context_id=LINE, branch="try")
    await world.analysis.call("window.delete", session_id=SESSION)
    await ingest(world.analysis, message("b", "two"))
    assert await contents(world.analysis) == ["two"]


async def test_every_process_reads_each_version_as_it_was_whatever_it_has_cached(world: World) -> None:
    chance = random.Random(4)
    callers = [world.analysis, world.analysis.at(await world.another_app())]
    expected: list[list[str]] = [[]]
    for number in range(40):
        caller = chance.choice(callers)
        if chance.random() < 0.7 or len(expected) < 3:
            texts = [f"{number} {'x' * chance.choice([1, 5_000])}" for _ in range(chance.randint(1, 3))]
            await ingest(caller, *(message(f"e{number}-{place}", text) for place, text in enumerate(texts)))
            expected.append([*expected[-1], *texts])
        else:
            target = chance.randrange(len(expected) - 1)
            await world.planner.call("history.rollback", context_id=LINE, target_version=target)
            if expected[target] != expected[-1]:
                expected.append(expected[target])
        if chance.random() < 0.5:
            assert await contents(chance.choice(callers), limit=200) == expected[-1]
    for caller in callers:
        assert await contents(caller, limit=200) == expected[-1]
    assert (await world.planner.call("history.verify", context_id=LINE))["intact"] is True


@pytest.mark.req("MW-11")
async def test_one_label_names_the_windows_of_several_agents(world: World) -> None:
    for caller in (world.planner, world.analysis, world.review):
        await ingest(caller, message("a", "before"))
    made = await checkpoint(world.planner, "start")
    assert [window["agent_id"] for window in made["windows"]] == ["analysis", "planner", "review-2"]
    await checkpoint(world.analysis, "mine")
    assert await checkpoints(world.planner) == {"mine": ["analysis"], "start": ["analysis", "planner", "review-2"]}
    assert await checkpoints(world.analysis) == {"mine": ["analysis"], "start": ["analysis"]}
    assert await checkpoints(world.planner, agent_id="review-2") == {"start": ["review-2"]}
    with refused("SNAPSHOT_EXISTS"):
        await checkpoint(world.planner, "start")
    with refused("INVALID_INPUT_FORMAT"):
        await checkpoint(world.planner, "autosave-v1")


@pytest.mark.req("MW-11")
@pytest.mark.req("MW-15")
async def test_automatic_checkpoints_of_two_agents_have_labels_of_their_own(world: World) -> None:
    for caller in (world.planner, world.analysis):
        await ingest(caller, message("a", "before"))
    await checkpoint(world.planner, "start")
    for caller in (world.planner, world.analysis):
        await ingest(caller, message("b", "after"))
    done = await restore(world.planner, "start", all_agents=True)
    named = {window["snapshot_before"]: [window["agent_id"]] for window in done["windows"]}
    assert len(named) == 2
    assert {**named, "start": ["analysis", "planner"]} == await checkpoints(world.planner)


@pytest.mark.req("MW-11")
async def test_a_restore_touches_the_callers_window_unless_it_asks_for_more(world: World) -> None:
    for caller in (world.planner, world.analysis):
        await ingest(caller, message("a", "before"))
    await checkpoint(world.planner, "start")
    for caller in (world.planner, world.analysis):
        await ingest(caller, message("b", "after"))
    done = await restore(world.planner, "start")
    assert [window["agent_id"] for window in done["windows"]] == ["planner"]
    assert await contents(world.analysis) == ["before", "after"]
    for asked in ({"agent_id": "analysis"}, {"from_agent_id": "analysis"}):
        with refused("INVALID_INPUT_FORMAT"):
            await restore(world.planner, "start", all_agents=True, **asked)
    with refused("WINDOW_NOT_FOUND") as caught:
        await restore(world.admin, "start")
    assert "agent_id" in caught.value.hint


@pytest.mark.req("MW-11")
async def test_a_checkpoint_is_restored_for_all_agents_or_for_one(world: World) -> None:
    callers = (world.planner, world.analysis, world.review)
    for caller in callers:
        await ingest(caller, message("a", "before"))
    await checkpoint(world.planner, "start")
    for caller in callers:
        await ingest(caller, message("b", "after"))
    one = await restore(world.planner, "start", agent_id="analysis")
    assert [(window["agent_id"], window["removed"]) for window in one["windows"]] == [("analysis", 1)]
    assert [await contents(caller) for caller in callers] == [["before", "after"], ["before"], ["before", "after"]]
    await restore(world.planner, "start", all_agents=True)
    assert [await contents(caller) for caller in callers] == [["before"]] * 3
    with refused("SNAPSHOT_NOT_FOUND"):
        await restore(world.planner, "never")


@pytest.mark.req("MW-11")
async def test_a_checkpoint_is_restored_into_another_agents_window(world: World) -> None:
    await ingest(world.analysis, message("a", "one"), message("b", "long " * 2_000), message("s", "secret"))
    await checkpoint(world.analysis, "done")
    secret = (await window_events(world.analysis))["events"][-1]
    await world.analysis.call("records.redact", item_id=secret["item_id"], state="removed", reason="secret")
    await ingest(world.review, message("x", "its own"))
    await restore(world.planner, "done", agent_id="review-2", from_agent_id="analysis")
    assert await contents(world.review) == ["one", "long " * 2_000]
    added = await ingest(world.review, message("y", "goes on"))
    # After its own first event, and those that were restored.
    assert added["events"][0]["number"] == 4
    assert await contents(world.analysis) == ["one", "long " * 2_000, "[content removed]"]
    with refused("PERMISSION_DENIED"):
        await restore(world.review, "done", from_agent_id="analysis")


@pytest.mark.req("MW-11")
async def test_agents_branch_from_a_checkpoint_together(world: World) -> None:
    for caller in (world.planner, world.analysis):
        await ingest(caller, message("a", "before"))
    await checkpoint(world.planner, "start")
    for caller in (world.planner, world.analysis):
        await ingest(caller, message("b", "after"))
    made = await world.planner.call("window.branch", session_id=SESSION, label="start", branch="again", switch=True)
    assert [window["context_id"] for window in made["windows"]] == [
        f"window:{SESSION}:analysis@again", f"window:{SESSION}:planner@again"
    ]  # fmt: skip
    assert [await contents(caller) for caller in (world.planner, world.analysis)] == [["before"], ["before"]]
    await ingest(world.analysis, message("c", "otherwise"))
    await checkpoint(world.planner, "on_branch")
    assert await checkpoints(world.planner) == {"on_branch": ["analysis", "planner"], "start": ["analysis", "planner"]}
    await world.analysis.call("history.switch", context_id=LINE)
    assert await contents(world.analysis) == ["before", "after"]


@pytest.mark.req("MW-13", "MW-14")
async def test_changed_windows_are_saved_by_themselves(world: World) -> None:
    await ingest(world.analysis, message("a"))
    await create(world.planner, "review-2", autosave=False)
    await ingest(world.review, message("a"))
    await autosave(world)
    assert await checkpoints(world.planner) == {}
    world.clock.advance(seconds=AUTOSAVE_SECONDS)
    await autosave(world)
    assert await checkpoints(world.planner) == {"autosave-analysis-v1": ["analysis"]}
    assert await checkpoints(world.planner, include_automatic=False) == {}
    world.clock.advance(seconds=AUTOSAVE_SECONDS)
    await autosave(world)
    assert await checkpoints(world.planner) == {"autosave-analysis-v1": ["analysis"]}
    await ingest(world.analysis, message("b", "later"))
    await restore(world.analysis, "autosave-analysis-v1")
    assert await contents(world.analysis) == ["text"]


@pytest.mark.req("MW-13")
async def test_only_the_latest_autosaves_stay(world: World) -> None:
    for number in range(13):
        await ingest(world.analysis, message(f"e{number}"))
        world.clock.advance(seconds=AUTOSAVE_SECONDS)
        await autosave(world)
    assert list(await checkpoints(world.planner)) == [f"autosave-analysis-v{number}" for number in range(13, 3, -1)]


@pytest.mark.req("MW-14")
async def test_autosave_can_be_switched_off_for_an_idle_agent(world: World) -> None:
    await ingest(world.analysis, message("a"))
    await world.analysis.call("window.update", session_id=SESSION, autosave=False)
    world.clock.advance(seconds=AUTOSAVE_SECONDS)
    await autosave(world)
    assert await checkpoints(world.planner) == {}


@pytest.mark.req("MW-13")
async def test_idle_windows_are_not_in_the_index_of_autosave(world: World) -> None:
    await ingest(world.analysis, message("a"))
    world.clock.advance(seconds=AUTOSAVE_SECONDS)
    await autosave(world)
    assert await world.rows("SELECT agent_id FROM windows WHERE unsaved_since IS NOT NULL") == []


async def test_ingestion_autosave_and_deletion_do_not_disturb_each_other(world: World) -> None:
    other = await world.another_app()
    callers = [each.at(app) for each in (world.planner, world.analysis, world.review) for app in (world.app, other)]
    await asyncio.gather(*(ingest(caller, message(f"first-{number}")) for number, caller in enumerate(callers)))
    world.clock.advance(seconds=AUTOSAVE_SECONDS)
    calls = [outcome(ingest(caller, message(f"e{number}"))) for number in range(5) for caller in callers]
    deletion = outcome(world.planner.call("session.delete", session_id=SESSION, force=True))
    done = await asyncio.gather(autosave(world), *calls[:15], deletion, *calls[15:])
    assert set(done[1:]) <= {"ok", "SESSION_NOT_FOUND"}
    assert done[16] == "ok"
    for table in ("windows", "lines WHERE line_id LIKE 'window:%'", "tags WHERE line_id LIKE 'window:%'"):
        assert (await world.rows(f"SELECT COUNT(*) FROM {table}"))[0][0] == 0


async def test_an_archived_session_is_read_and_not_changed(world: World) -> None:
    await ingest(world.analysis, message("a", "kept"))
    await checkpoint(world.planner, "start")
    await world.planner.call("session.archive", session_id=SESSION)
    assert await contents(world.analysis) == ["kept"]
    assert await checkpoints(world.analysis) == {"start": ["analysis"]}
    for call in (
        restore(world.planner, "start", agent_id="analysis"),
        checkpoint(world.planner, "late"),
        world.planner.call("history.rollback", context_id=LINE, target_version=0),
        world.planner.call("window.update", session_id=SESSION, agent_id="analysis", autosave=False),
    ):
        with refused("SESSION_ARCHIVED"):
            await call
