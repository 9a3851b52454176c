"""agent.capabilities: what an agent may do, with valid example calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import refused
from weft.app.registry import all_operations
from weft.capabilities.guidance.examples import example_request
from weft.kernel.identity import Actor, Permission, PrincipalKind

ADMIN = Actor("t", "admin", PrincipalKind.HUMAN, "admin", False, frozenset(Permission), 5, 0)  # noqa: FBT003

if TYPE_CHECKING:
    from support.world import World
    from weft.kernel.operation import Operation


@pytest.mark.parametrize(
    "operation", [o for o in all_operations() if o.tool != "authenticate_agent"], ids=lambda o: o.name
)
def test_every_example_is_a_valid_request(operation: Operation) -> None:
    arguments = example_request(operation, ADMIN)
    assert arguments.pop("action", None) == operation.action
    assert operation.parse(arguments)


async def test_guidance_names_only_permitted_operations(world: World) -> None:
    async def tools(caller: object) -> set[str]:
        answer = await caller.call("agent.capabilities")
        return {offered["tool"] for offered in answer["operations"]}

    admins, planners, subagents = [await tools(c) for c in (world.admin, world.planner, world.review)]
    assert "get_audit_log" in admins
    assert "create_session" in planners - subagents
    assert "get_audit_log" not in planners
    assert {"shared_context", "add_message", "set_memory", "search_context"} <= subagents
    assert "authenticate_agent" not in admins


async def test_capabilities_describe_the_caller(world: World) -> None:
    reader = await world.planner.with_token("planner", "planning", requested_permissions=["read"])
    answer = await reader.call("agent.capabilities")
    assert (answer["access_level"], answer["permissions"], answer["not_granted"]) == (
        "READ_ONLY",
        ["read"],
        ["admin", "write"],
    )
    assert "add_message" not in {offered["tool"] for offered in answer["operations"]}
    assert "refresh_token" in {offered["tool"] for offered in answer["operations"]}
    assert (await world.admin.call("agent.capabilities"))["access_level"] == "ADMIN"
    assert (await world.planner.call("agent.capabilities"))["access_level"] == "AGENT"


async def test_revoked_permissions_are_reflected_at_once_in_every_process(world: World) -> None:
    in_other_process = world.planner.at(await world.another_app())
    assert (await in_other_process.call("agent.capabilities"))["access_level"] == "AGENT"
    await world.admin.call("agent.update", agent_id="planner", permissions=["read"])
    assert (await in_other_process.call("agent.capabilities"))["access_level"] == "READ_ONLY"
    await world.admin.call("agent.update", agent_id="planner", disabled=True)
    with refused("AUTHENTICATION_ERROR"):
        await in_other_process.call("agent.capabilities")


async def test_examples_use_the_caller_s_agent_id(world: World) -> None:
    offered = {call["tool"]: call["example"] for call in (await world.review.call("agent.capabilities"))["operations"]}
    assert (await world.review.call("memory.overview", **offered["get_memory_overview"]))["agent_id"] == "review-2"


@pytest.mark.parametrize("topic", ["coordination", "security", "troubleshooting"])
async def test_advice_is_returned_by_topic(world: World, topic: str) -> None:
    answer = await world.review.call("agent.capabilities", guidance_type=topic)
    assert answer["operations"] == []
    assert len(answer["advice"]) >= 5
