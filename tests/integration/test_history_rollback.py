"""Snapshots, their index, and rollbacks to any version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.world import outcome, refused

if TYPE_CHECKING:
    from support.world import Caller, World

LINE = "board:s1"


async def history(caller: Caller, verb: str, **what: Any) -> Any:
    return await caller.call(f"history.{verb}", **{"context_id": LINE, **what})


async def state(caller: Caller, line: str = LINE, version: str = "head") -> dict[str, str]:
    answer = await history(caller, "state", context_id=line, version=version)
    return {entry["key"]: entry["value"] for entry in answer["entries"]}


async def labels(caller: Caller, **which: Any) -> list[str]:
    return [s["label"] for s in (await caller.call("history.snapshots", **which))["snapshots"]]


@pytest.fixture
async def filled(world: World) -> World:
    await world.planner.write("goal", "ship")
    await world.planner.write("plan", "one")
    await world.planner.write("goal", "changed")
    await world.planner.write("extra", "x")
    await world.planner.delete("plan")
    return world


@pytest.mark.req("CE-F22")
@pytest.mark.req("CE-U5")
async def test_a_rollback_is_a_new_version(filled: World) -> None:
    answer = await history(filled.admin, "rollback", target_version="2", reason="wrong turn", step="repair")
    assert answer == {
        "context_id": LINE,
        "rolled_back_to": 2,
        "from_version": 5,
        "version": 6,
        "written": ["goal", "plan"],
        "removed": ["extra"],
        "snapshot_before": "before-rollback-v5",
    }
    assert await state(filled.planner) == {"goal": "ship", "plan": "one"}
    assert await filled.planner.value("goal") == "ship"
    assert await state(filled.planner, version="before-rollback-v5") == {"goal": "changed", "extra": "x"}
    commit = (await history(filled.planner, "show"))["commit"]
    assert (commit["author"], commit["reason"], commit["step"]) == (
        "human:admin",
        "roll back to version 2: wrong turn",
        "repair",
    )
    assert (await history(filled.planner, "verify"))["intact"]


@pytest.mark.req("CE-F22")
async def test_a_rollback_of_a_changed_context_is_refused(filled: World) -> None:
    before = await state(filled.planner)
    with refused("VERSION_CONFLICT") as caught:
        await history(filled.admin, "rollback", target_version="2", if_version=4)
    assert (caught.value.context["current_version"], caught.value.context["expected_version"]) == (5, 4)
    assert await state(filled.planner) == before
    assert (await history(filled.admin, "rollback", target_version="2", if_version=5))["version"] == 6


async def test_a_rollback_can_be_rolled_back(filled: World) -> None:
    before = await state(filled.planner)
    await history(filled.admin, "rollback", target_version="1")
    await history(filled.admin, "rollback", target_version="5")
    assert await state(filled.planner) == before
    await history(filled.admin, "rollback", target_version="0")
    assert await state(filled.planner) == {}


async def test_a_rollback_to_the_current_state_changes_nothing(filled: World) -> None:
    answer = await history(filled.admin, "rollback", target_version="head")
    assert (answer["version"], answer["written"], answer["removed"], answer["snapshot_before"]) == (5, [], [], None)
    assert await labels(filled.admin) == []


@pytest.mark.req("CE-U5")
@pytest.mark.req("CE-F22")
async def test_a_rollback_needs_clearance_and_is_audited(filled: World) -> None:
    novice = await filled.admin.create_agent("novice", clearance=2)
    await filled.planner.admit("novice")
    with refused("PERMISSION_DENIED") as caught:
        await history(novice, "rollback", target_version="1")
    assert caught.value.context["required_clearance"] == 3
    with refused("PERMISSION_DENIED"):
        await history(filled.analysis, "rollback", target_version="1")
    lead = await filled.admin.create_agent("lead", clearance=3)
    await filled.planner.admit("lead")
    await history(lead, "rollback", target_version="1")
    rows = [row for row in await filled.admin.audit() if row["action"] == "history.rollback"]
    assert [(row["outcome"], row["agent_id"]) for row in rows] == [
        ("done", "lead"),
        ("denied", "analysis"),
        ("denied", "novice"),
    ]
    assert rows[0]["detail"]["version"] == 6


async def test_a_rollback_is_refused_if_one_key_is_not_writable(filled: World) -> None:
    lead = await filled.admin.create_agent("lead", clearance=3, permissions=["read", "write"])
    await filled.planner.admit("lead")
    await filled.planner.write("locked", "x", writable_by=["human:*"])
    await filled.admin.write("locked", "y", writable_by=["human:*"])
    with refused("PERMISSION_DENIED"):
        await history(lead, "rollback", target_version="1")
    assert (await history(lead, "log", limit=1))["commits"][0]["version"] == 7


async def test_a_rollback_does_not_name_hidden_keys(filled: World) -> None:
    await filled.planner.write("secret", "x", readable_by=["orchestrator"])
    answer = await history(filled.admin, "rollback", target_version="5")
    assert (answer["version"], answer["written"], answer["removed"]) == (7, [], [])


async def test_a_rollback_to_pruned_values_is_refused(world: World) -> None:
    board = await world.planner.create_session("short", keep_versions=1)
    for number in range(20):
        await board.write("goal", str(number))
    with refused("VERSION_PRUNED"):
        await history(world.admin, "rollback", context_id="board:short", target_version="1")
    assert await board.value("goal") == "19"


async def test_a_rollback_of_a_branch_leaves_the_board_unchanged(filled: World) -> None:
    await history(filled.planner, "branch", branch="try")
    await filled.planner.write("goal", "tried", branch="try")
    answer = await history(filled.admin, "rollback", context_id=f"{LINE}@try", target_version="1")
    assert (answer["version"], answer["written"], answer["removed"]) == (7, ["goal"], ["extra"])
    assert await state(filled.planner, f"{LINE}@try") == {"goal": "ship"}
    assert await state(filled.planner) == {"goal": "changed", "extra": "x"}


async def test_a_rolled_back_key_has_the_ttl_left_at_that_version(world: World) -> None:
    await world.planner.write("soon", "x", ttl_seconds=100)
    world.clock.advance(seconds=50)
    await world.planner.delete("soon")
    world.clock.advance(seconds=500)
    await history(world.admin, "rollback", target_version="1")
    assert await world.planner.value("soon") == "x"
    world.clock.advance(seconds=101)
    with refused("KEY_NOT_FOUND"):
        await world.planner.read("soon")


async def test_an_archived_board_cannot_be_rolled_back(filled: World) -> None:
    await filled.admin.call("session.archive", session_id="s1")
    with refused("SESSION_ARCHIVED"):
        await history(filled.admin, "rollback", target_version="1")
    assert await state(filled.planner, version="1") == {"goal": "ship"}


async def test_concurrent_rollbacks_are_serialised(filled: World) -> None:
    other = filled.admin.at(await filled.another_app())
    codes = await asyncio.gather(
        outcome(history(filled.admin, "rollback", target_version="1")),
        outcome(history(other, "rollback", target_version="2")),
    )
    assert codes == ["ok", "ok"]
    assert await state(filled.planner) in ({"goal": "ship"}, {"goal": "ship", "plan": "one"})
    assert (await history(filled.planner, "verify"))["intact"]


@pytest.mark.req("CE-U5")
@pytest.mark.req("CE-F21")
@pytest.mark.req("SC-15")
async def test_a_snapshot_tags_the_head_and_needs_clearance(filled: World) -> None:
    taken = await history(filled.admin, "snapshot", label="good")
    assert (taken["version"], taken["created_by"]) == (5, "human:admin")
    with refused("SNAPSHOT_EXISTS"):
        await history(filled.admin, "snapshot", label="good")
    novice = await filled.admin.create_agent("novice", clearance=2)
    await filled.planner.admit("novice")
    with refused("PERMISSION_DENIED") as caught:
        await history(novice, "snapshot", label="mine")
    assert caught.value.context["required_clearance"] == 3
    filled.clock.advance(seconds=1)
    await filled.planner.write("goal", "later")
    await history(filled.admin, "rollback", target_version="good")
    assert await state(filled.planner) == {"goal": "changed", "extra": "x"}
    assert await filled.planner.snapshots() == ["good", "before-rollback-v6"]


@pytest.mark.req("MW-11", part="checkpoints of boards and persistent memory")
async def test_the_snapshot_index_lists_every_visible_line(world: World) -> None:
    closed = await world.planner.create_session("closed", members=["orchestrator"])
    for number, session in enumerate(("s1", "closed", "s1", "closed", "s1")):
        world.clock.advance(seconds=1)
        await history(world.admin, "snapshot", context_id=f"board:{session}", label=f"n{number}")
    assert await labels(world.admin) == ["n4", "n3", "n2", "n1", "n0"]
    assert await labels(world.planner) == ["n4", "n3", "n2", "n1", "n0"]
    assert await labels(world.analysis) == [], "a sub-agent has named no session"
    assert await labels(world.analysis, context_id="board:s1") == ["n4", "n2", "n0"]
    assert await labels(world.stranger) == []
    assert await labels(world.admin, context_id="board:closed") == ["n3", "n1"]
    page = await world.admin.call("history.snapshots", limit=2)
    assert [s["label"] for s in page["snapshots"]] == ["n4", "n3"]
    page = await world.admin.call("history.snapshots", limit=2, cursor=page["next_cursor"])
    assert [s["label"] for s in page["snapshots"]] == ["n2", "n1"]
    page = await world.admin.call("history.snapshots", limit=2, cursor=page["next_cursor"])
    assert ([s["label"] for s in page["snapshots"]], "next_cursor" in page) == (["n0"], False)
    with refused("CONTEXT_NOT_FOUND"):
        await world.analysis.call("history.snapshots", context_id="board:closed")
    for nonsense in ("x", "é", "W10=", "eyJhIjoxfQ=="):
        with refused("INVALID_INPUT_FORMAT"):
            await world.admin.call("history.snapshots", cursor=nonsense)
    await closed.write("goal", "x")


def learned(key: str, value: Any) -> list[dict[str, Any]]:
    return [{"memory_type": "learned_knowledge", "key": key, "value": value}]


@pytest.mark.req("CE-F21")
async def test_snapshots_of_a_line_are_paged(filled: World) -> None:
    for label in ("a", "b", "c"):
        await history(filled.admin, "snapshot", context_id=LINE, label=label)
        filled.clock.advance(seconds=1)
    page = await history(filled.analysis, "context_snapshots", context_id=LINE, limit=2)
    assert [(s["label"], s["context_id"]) for s in page["snapshots"]] == [("c", LINE), ("b", LINE)]
    rest = await history(filled.analysis, "context_snapshots", context_id=LINE, limit=2, cursor=page["next_cursor"])
    assert [s["label"] for s in rest["snapshots"]] == ["a"]
    assert "next_cursor" not in rest
    with refused("CONTEXT_NOT_FOUND"):
        await history(filled.stranger, "context_snapshots", context_id=LINE)


@pytest.mark.req("CE-A")
@pytest.mark.req("CE-F55")
@pytest.mark.req("CE-F56")
@pytest.mark.req("MW-11", part="checkpoints of boards and persistent memory")
async def test_persistent_memory_has_snapshots_and_is_rolled_back_with_clearance_4(world: World) -> None:
    line = "context:analysis:learned_knowledge"
    await world.analysis.call("context.push", knowledge=learned("tone", "formal"), if_version=0)
    await history(world.admin, "snapshot", context_id=line, label="before_learning")
    await world.analysis.call("context.push", knowledge=learned("tone", "rude"), if_version=1)
    lead = await world.admin.create_agent("lead", clearance=3)
    with refused("PERMISSION_DENIED") as caught:
        await history(lead, "rollback", context_id=line, target_version="before_learning")
    assert caught.value.context["required_clearance"] == 4
    world.clock.advance(seconds=1)
    answer = await history(world.admin, "rollback", context_id=line, target_version="before_learning")
    assert (answer["written"], answer["snapshot_before"]) == (["tone"], "before-rollback-v2")
    assert await state(world.analysis, line) == {"tone": "formal"}
    rows = [row for row in await world.admin.audit() if row["action"] == "history.rollback"]
    assert [row["outcome"] for row in rows] == ["done", "denied"]
    assert await labels(world.admin, agent_id="analysis") == ["before-rollback-v2", "before_learning"]
    assert await labels(world.admin, agent_id="planner") == []


@pytest.mark.req("CE-A")
@pytest.mark.req("CE-F56")
async def test_a_whole_context_is_rolled_back_part_by_part(world: World) -> None:
    push = {"knowledge": learned("tone", "formal"), "if_version": 0}
    await world.analysis.call("context.push", **push)
    await world.analysis.call("context.push", knowledge=learned("tone", "rude"), if_version=1)
    prefer = [{"memory_type": "team_preferences", "key": "units", "value": "metric"}]
    await world.analysis.call("context.push", knowledge=prefer, if_version=2)
    with refused("VERSION_CONFLICT"):
        await history(world.admin, "rollback", context_id="context:analysis", target_version="1", if_version=2)
    answer = await history(world.admin, "rollback", context_id="context:analysis", target_version="1", if_version=3)
    assert (answer["from_version"], answer["version"]) == (3, 4)
    assert await state(world.analysis, "context:analysis:learned_knowledge") == {"tone": "formal"}
    assert await state(world.analysis, "context:analysis:team_preferences") == {}


async def test_values_in_object_storage_are_readable_at_every_version(world: World) -> None:
    artifact = {"memory_type": "work_artifacts", "key": "report"}
    first = [{**artifact, "value": "x" * 50_000}]
    second = [{**artifact, "base64": "AAEC/w==", "media_type": "application/octet-stream"}]
    await world.analysis.call("context.push", knowledge=first, if_version=0)
    await world.analysis.call("context.push", knowledge=second, if_version=1)
    line = {"context_id": "context:analysis:work_artifacts", "key": "report"}
    (old,) = (await world.analysis.call("history.state", **line, version="1"))["entries"]
    assert (old["value"], old["size"], old["outside"]) == ("x" * 50_000, 50_002, True)
    (new,) = (await world.analysis.call("history.state", **line))["entries"]
    assert (new["base64"], new["value"], new["media_type"]) == ("AAEC/w==", None, "application/octet-stream")
    diff = await world.analysis.call("history.diff", context_id=line["context_id"], from_version="1")
    assert "not text but application/octet-stream" in diff["modified"][0]["no_diff"]
