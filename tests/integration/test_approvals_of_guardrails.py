"""A guardrail that asks holds calls; the tenant's policy says who decides and for how long."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.approvals import approval_of, pending
from support.world import outcome, refused
from weftline.app.authentication import InStep

if TYPE_CHECKING:
    from support.world import Caller, World

RULE = {
    "name": "ask-before-deleting",
    "prohibited_action": ["board.delete"],
    "condition": "arguments.key == 'goal'",
    "violation_response": "ask",
    "message": "Deleting the goal needs an approval.",
}


@pytest.fixture
async def approver(world: World) -> Caller:
    for key in ("goal", "notes"):
        await world.planner.write(key)
    return await world.admin.create_agent("approver", kind="human", clearance=3, permissions=["read", "write"])


async def define(world: World, *rules: dict[str, Any], **fields: Any) -> None:
    await world.admin.call("layer.define", layer="tenant", guardrails=list(rules), **fields)


async def test_a_call_that_a_rule_asks_for_is_performed_when_it_is_approved(world: World, approver: Caller) -> None:
    await define(world, RULE)
    await world.planner.delete("notes")
    with refused("APPROVAL_PENDING") as caught:
        await world.planner.delete("goal")
    assert "Deleting the goal needs an approval." in caught.value.message
    [held] = await pending(approver)
    await approver.call("approval.approve", approval_id=held["approval_id"])
    assert (await world.planner.delete("goal"))["deleted"] == "goal"
    assert await world.planner.keys() == []


async def test_a_rule_that_changed_meanwhile_holds_the_call_again(world: World, approver: Caller) -> None:
    await define(world, RULE)
    assert await outcome(world.planner.delete("goal")) == "APPROVAL_PENDING"
    approval_id = await approval_of(approver)
    await define(world, {**RULE, "condition": "true"})
    assert (await approver.call("approval.approve", approval_id=approval_id))["state"] == "pending"
    assert (await approver.call("approval.approve", approval_id=approval_id))["state"] == "performed"


async def test_another_rule_that_blocks_is_not_passed(world: World, approver: Caller) -> None:
    await define(world, RULE)
    assert await outcome(world.planner.delete("goal")) == "APPROVAL_PENDING"
    approval_id = await approval_of(approver)
    await define(world, RULE, {"name": "never", "prohibited_action": ["board.delete"]})
    decided = await approver.call("approval.approve", approval_id=approval_id)
    assert decided["failed_with"]["code"] == "GUARDRAIL_VIOLATION"
    assert await world.planner.keys() == ["goal", "notes"]


async def test_the_policy_says_who_decides_and_for_how_long(world: World, approver: Caller) -> None:
    await define(world, RULE, policy={"approver_clearance": 4, "approval_seconds": 120})
    chief = await world.admin.create_agent("chief", kind="human", clearance=4, permissions=["read", "write"])
    assert await outcome(world.planner.delete("goal")) == "APPROVAL_PENDING"
    approval_id = await approval_of(chief)
    assert (await approver.call("approval.list"))["approvals"] == []
    assert await outcome(approver.call("approval.approve", approval_id=approval_id)) == "APPROVAL_NOT_FOUND"
    requested = [event["type"] for event in (await approver.events())["events"] if event["subject"] == approval_id]
    assert requested == []
    world.clock.advance(seconds=121)
    assert await outcome(chief.call("approval.approve", approval_id=approval_id)) == "APPROVAL_CLOSED"


async def test_agents_of_one_tree_cannot_approve_for_each_other(world: World, approver: Caller) -> None:
    del approver
    await define(world, RULE)
    assert await outcome(world.review.delete("goal")) == "APPROVAL_PENDING"
    approval_id = await approval_of(world.admin)
    for agent in (world.planner, world.review, world.analysis):
        assert await outcome(agent.call("approval.approve", approval_id=approval_id)) == "PERMISSION_DENIED"


async def test_many_waiting_callers_in_two_processes_get_their_answers(world: World, approver: Caller) -> None:
    await define(world, {"name": "ask", "prohibited_action": ["message.add"], "violation_response": "ask"})
    apps = [await world.another_app(approval_wait_seconds=20) for _ in range(2)]
    texts = [f"message {number}" for number in range(12)]
    waiting = [asyncio.create_task(world.planner.at(apps[number % 2]).say(text)) for number, text in enumerate(texts)]
    held = await pending(approver, len(texts))
    await asyncio.gather(*(approver.call("approval.approve", approval_id=each["approval_id"]) for each in held))
    async with asyncio.timeout(60):
        numbers = await asyncio.gather(*waiting)
    assert sorted(numbers) == list(range(1, len(texts) + 1))
    assert sorted(await world.planner.message_texts()) == sorted(texts)


@pytest.mark.parametrize("bound", ["token", "endpoint"])
async def test_an_approved_call_is_performed_within_the_step_of_its_caller(
    world: World, approver: Caller, bound: str
) -> None:
    """An approval passes the rule that asked, and no other: not the step, nor what is prohibited in it."""
    tools = ["shared_context.delete", "shared_context.read"]
    await world.admin.call("step.define", name="review", tools=tools)
    in_step = {**RULE, "name": "not-in-review", "condition": "step == 'review'", "violation_response": "block"}
    if bound == "token":
        planner = await world.planner.with_token("planner", "planning", step="review")
    else:
        planner = replace(world.planner, credential=InStep(world.planner.credential, "review"))
    await define(world, RULE, in_step)
    assert await outcome(planner.delete("goal")) == "APPROVAL_PENDING"
    done = await approver.call("approval.approve", approval_id=await approval_of(approver))
    assert done["failed_with"]["code"] == "GUARDRAIL_VIOLATION"
    await define(world, {**RULE, "message": "Another one."})
    assert await outcome(planner.delete("goal")) == "GUARDRAIL_VIOLATION", "the answer that was stored"
    assert await outcome(planner.delete("goal", if_version=7)) == "APPROVAL_PENDING"
    await world.admin.call("step.define", name="review", tools=tools[1:])
    done = await approver.call("approval.approve", approval_id=await approval_of(approver))
    assert done["failed_with"]["code"] == "TOOL_NOT_IN_STEP"
    assert "goal" in str(await world.planner.keys())
