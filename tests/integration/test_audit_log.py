"""The audit log: who did what to what, when; filtered, and with the target of what was denied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, refused

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("MS-13")


async def actions(world: World, **wanted: Any) -> list[str]:
    return [f"{row['action']} {row['target']}" for row in await world.admin.audit(**wanted)][::-1]


async def test_denied_rows_name_what_the_caller_wanted(world: World) -> None:
    with refused("PERMISSION_DENIED"):
        await world.planner.call("session.inspect", session_id=SESSION)
    with refused("PERMISSION_DENIED"):
        await world.planner.call("team.create", team="red", description="x")
    with refused("PERMISSION_DENIED"):
        await world.planner.call("memory.inspect", agent_id="writer")
    assert await actions(world, outcome="denied", agent_id="planner") == [
        f"session.inspect {SESSION}",
        "team.create red",
        "memory.inspect writer",
    ]


async def test_denied_rows_contain_no_values(world: World) -> None:
    with refused("PERMISSION_DENIED"):
        await world.planner.call("team.create", team="ops", description="Hidden words")
    rows = await world.admin.audit(outcome="denied", agent_id="planner")
    assert [row["target"] for row in rows] == ["ops"]
    assert "idden" not in str(rows)


async def test_the_log_is_filtered_by_action_agent_target_and_time(world: World) -> None:
    await world.admin.call("team.create", team="red", description="x")
    await world.admin.call("team.update", team="red", description="y")
    middle = (await world.admin.audit(limit=1))[0]["at"]
    with refused("PERMISSION_DENIED"):
        await world.planner.call("team.create", team="red", description="x")
    named = [row["action"] for row in await world.admin.audit(action="team")]
    assert named == ["team.create", "team.update", "team.create"]
    assert [row["outcome"] for row in await world.admin.audit(action="team.create")] == ["denied", "done"]
    assert [row["agent_id"] for row in await world.admin.audit(agent_id="planner")] == ["planner"]
    assert {row["outcome"] for row in await world.admin.audit(target="red", agent_id="planner")} == {"denied"}
    assert len(await world.admin.audit(target="red", outcome="done")) == 2
    assert await world.admin.audit(target="re") == []
    assert middle in [row["at"] for row in await world.admin.audit(until=middle, action="team")]
    assert await world.admin.audit(since="2001-01-01", until="2001-01-02") == []
    with refused("INVALID_INPUT_FORMAT"):
        await world.admin.audit(since="2001-01-02", until="2001-01-01")
