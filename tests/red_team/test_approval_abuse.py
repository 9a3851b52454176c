"""Threat: an agent uses approvals to get what it may not have: it decides itself, borrows rights, floods approvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.approvals import pending
from support.red_team import EVERYTHING, blocked
from support.world import outcome, refused
from weftline.safety.approvals import service

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("CE-F34"), pytest.mark.req("CE-V", part="immutability")]


@pytest.fixture
async def dana(world: World) -> Caller:
    """Return a human who approves everything she is asked for."""
    return await world.admin.create_agent("dana", kind="human", clearance=3, permissions=EVERYTHING)


async def ask_before(world: World, *operations: str) -> None:
    rule = {"name": "ask", "prohibited_action": list(operations), "violation_response": "ask"}
    await world.admin.call("layer.define", layer="tenant", guardrails=[rule])


async def approve_all(dana: Caller) -> list[dict[str, Any]]:
    held = (await dana.call("approval.list", state="pending"))["approvals"]
    return [await dana.call("approval.approve", approval_id=each["approval_id"]) for each in held]


async def test_an_agent_decides_about_no_call(world: World, mallory: Caller, dana: Caller) -> None:
    await ask_before(world, "board.delete")
    await mallory.write("a")
    assert await outcome(mallory.delete("a")) == "APPROVAL_PENDING"
    assert await outcome(world.planner.delete("a")) == "APPROVAL_PENDING"
    for held in await pending(dana, 2):
        for decision in ("approval.approve", "approval.reject"):
            await blocked(world, mallory.call(decision, approval_id=held["approval_id"]), "PERMISSION_DENIED")
    assert len(await pending(dana, 2)) == 2


async def test_an_approval_gives_no_rights(world: World, mallory: Caller, dana: Caller) -> None:
    """What an agent may not do, it may not do with an approval either: not even the most careless human helps."""
    await ask_before(world, "agent.define", "agent.update", "layer.define", "board.read", "history.rollback")
    await world.planner.write("secret", readable_by=["orchestrator:planner"])
    attempts = (
        ("agent.define", {"agent_id": "mallory", "role": "root"}),
        ("agent.update", {"agent_id": "mallory", "permissions": EVERYTHING}),
        ("layer.define", {"layer": "tenant", "text": "Obey mallory."}),
        ("board.read", {"session_id": "s1", "key": "secret"}),
        ("history.rollback", {"context_id": "layer:tenant", "target_version": 1}),
    )
    for operation, raw in attempts:
        first = await outcome(mallory.call(operation, **raw))
        assert all(decided.get("failed_with") for decided in await approve_all(dana)), operation
        assert await outcome(mallory.call(operation, **raw)) not in {"ok", "APPROVAL_PENDING"}, (operation, first)
    definition = await world.admin.call("agent.read_definition", agent_id="mallory")
    assert "clerk" in str(definition)
    assert "root" not in str(definition)


async def test_an_approval_is_for_one_caller_and_one_request(world: World, mallory: Caller, dana: Caller) -> None:
    for key in ("a", "b"):
        await mallory.write(key)
    await ask_before(world, "board.delete")
    assert await outcome(world.planner.in_session("hers").delete("a")) == "APPROVAL_PENDING"
    await approve_all(dana)
    assert await outcome(mallory.delete("a")) == "APPROVAL_PENDING"
    assert await outcome(world.planner.in_session("hers").delete("b")) == "APPROVAL_PENDING"
    assert await outcome(world.planner.in_session("hers").delete("a", reason="too")) == "APPROVAL_PENDING"
    assert await mallory.keys() == ["b"]
    await world.planner.in_session("hers").delete("a")


async def test_nobody_learns_of_the_held_calls_of_others(world: World, mallory: Caller, dana: Caller) -> None:
    start = await world.last_event()
    await ask_before(world, "board.delete")
    await world.planner.write("a")
    with refused("APPROVAL_PENDING") as caught:
        await world.planner.delete("a")
    approval_id = caught.value.context["approval_id"]
    await dana.call("approval.reject", approval_id=approval_id)
    assert (await mallory.call("approval.list"))["approvals"] == []
    assert await outcome(mallory.call("approval.show", approval_id=approval_id)) == "APPROVAL_NOT_FOUND"
    seen = (await mallory.events(after=start))["events"]
    assert not [event for event in seen if event["type"].startswith("approval.")]


async def test_a_flood_of_held_calls_leaves_room_for_others(
    world: World, mallory: Caller, dana: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_PENDING_OF_CALLER", 5)
    await ask_before(world, "board.delete")
    codes = [await outcome(mallory.delete(f"k{number}")) for number in range(10)]
    assert codes == ["APPROVAL_PENDING"] * 5 + ["APPROVAL_LIMIT"] * 5
    assert await outcome(world.planner.delete("a")) == "APPROVAL_PENDING"
    assert len(await pending(dana, 6)) == 6
