"""Reasons and workflow steps of changes, and automatic snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused

if TYPE_CHECKING:
    from support.world import World


async def commits(world: World, line_id: str = "board:s1") -> list[tuple[Any, ...]]:
    rows = await world.rows(
        "SELECT seq, reason, step FROM commits WHERE tenant = $1 AND line_id = $2 ORDER BY seq", world.tenant, line_id
    )
    return [tuple(row) for row in rows]


@pytest.mark.req("CE-F23")
async def test_a_change_records_its_reason_and_workflow_step(world: World) -> None:
    await world.planner.write("goal", "x", reason="the user asked for it", step="plan")
    await world.planner.write("goal", "y")
    await world.planner.delete("goal", reason="settled: 漢", step="plan")
    assert await commits(world) == [
        (1, "the user asked for it", "plan"),
        (2, "write", None),
        (3, "settled: 漢", "plan"),
    ]


@pytest.mark.req("CE-F23")
async def test_invalid_reasons_and_steps_are_refused(world: World) -> None:
    await world.planner.write("goal")
    for terms in ({"reason": "a\nb"}, {"reason": "\x00"}, {"reason": "\ud800"}, {"reason": "x" * 201}, {"step": "a b"}):
        for attempt in (world.planner.write("goal", **terms), world.planner.delete("goal", **terms)):
            with refused("INVALID_INPUT_FORMAT"):
                await attempt
    assert await commits(world) == [(1, "write", None)]


@pytest.mark.req("CE-F21")
async def test_a_new_step_tags_the_state_of_the_previous_one(world: World) -> None:
    await world.planner.write("goal", "1", step="plan")
    await world.planner.write("goal", "2", step="plan")
    await world.planner.write("goal", "3")
    assert await world.planner.snapshots() == []
    await world.analysis.write("goal", "4", step="build")
    await world.analysis.delete("goal", step="build")
    listed = (await world.planner.call("board.list_snapshots", session_id="s1"))["snapshots"]
    assert listed == [
        {
            "label": "after-plan-v3",
            "created_by": "subagent:analysis",
            "created_at": "2026-02-20T14:30:00Z",
            "automatic": True,
        }
    ]
    assert await world.planner.read_snapshot("after-plan-v3") == {"goal": "3"}


@pytest.mark.req("CE-F21")
async def test_a_step_name_of_maximum_length_makes_a_snapshot(world: World) -> None:
    await world.planner.write("goal", "1", step="s" * 100)
    await world.planner.write("goal", "2", step="t")
    (label,) = await world.planner.snapshots()
    assert await world.planner.read_snapshot(label) == {"goal": "1"}


@pytest.mark.req("CE-F21")
@pytest.mark.req("CE-F25")
async def test_steps_are_tracked_per_branch(world: World) -> None:
    await world.planner.write("goal", "1", step="plan")
    await world.planner.call("history.branch", context_id="board:s1", branch="try")
    await world.planner.write("goal", "2", step="build", branch="try", reason="trying")
    await world.planner.write("goal", "3", step="test", branch="try")
    assert await commits(world, "board:s1@try") == [(2, "trying", "build"), (3, "write", "test")]
    assert await world.planner.snapshots() == []
    assert "after-build-v2" in await world.planner.snapshots(branch="try")


@pytest.mark.req("CE-F21")
@pytest.mark.req("SC-15")
async def test_the_state_before_a_restore_can_be_restored(world: World) -> None:
    await world.planner.write("goal", "1")
    await world.planner.snapshot("mark")
    await world.planner.write("goal", "2")
    await world.planner.restore("mark")
    listed = (await world.planner.call("board.list_snapshots", session_id="s1"))["snapshots"]
    assert [(each["label"], each.get("automatic", False)) for each in listed] == [
        ("before-restore-v2", True),
        ("mark", False),
    ]
    await world.planner.restore("before-restore-v2")
    assert await world.planner.value("goal") == "2"
    assert (await world.admin.inspect())["history_intact"]


@pytest.mark.req("CE-F22")
@pytest.mark.req("SC-15")
async def test_a_restore_needs_clearance_3(world: World) -> None:
    await world.planner.snapshot("mark")
    await world.planner.write("goal", "1")
    for clearance in (1, 2):
        await world.admin.call("agent.update", agent_id="planner", clearance=clearance)
        with refused("PERMISSION_DENIED") as caught:
            await world.planner.restore("mark")
        assert caught.value.context["required_clearance"] == 3
        assert caught.value.context["your_clearance"] == clearance
    assert await world.planner.keys() == ["goal"]
    assert await world.planner.snapshots() == ["mark"]
    denied = [row for row in await world.admin.audit() if row["action"] == "board.restore_snapshot"]
    assert len(denied) == 2
    await world.admin.call("agent.update", agent_id="planner", clearance=3)
    await world.planner.restore("mark")
    assert await world.planner.keys() == []
