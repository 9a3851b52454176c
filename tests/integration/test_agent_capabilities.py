"""agent.capabilities: what an agent may do, with valid example calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.world import refused
from weftline.app.registry import all_operations
from weftline.insight.guidance import example_request, topic_of, topics
from weftline.kernel.identity import Actor, Permission, PrincipalKind
from weftline.providers.tokenizers import TokenizerRegistry

MAX_GUIDANCE_TOKENS = 600
ADMIN = Actor("t", "admin", PrincipalKind.HUMAN, "admin", False, frozenset(Permission) - {Permission.AUDIT}, 5, 0)  # noqa: FBT003

if TYPE_CHECKING:
    from support.world import Caller, World


def test_every_example_is_a_valid_request() -> None:
    for operation in all_operations():
        if operation.tool != "authenticate_agent":
            arguments = example_request(operation, ADMIN)
            assert arguments.pop("action", None) == operation.action, operation.name
            assert operation.parse(arguments), operation.name


async def tools(caller: Caller) -> set[str]:
    answer = await caller.call("agent.capabilities")
    return {tool for offered in answer["topics"].values() for tool in offered}


async def test_guidance_names_only_permitted_operations(world: World) -> None:
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
    assert "add_message" not in await tools(reader)
    assert "refresh_token" in await tools(reader)
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


async def test_a_topic_has_an_example_of_one_of_its_operations(world: World) -> None:
    answer = await world.review.call("agent.capabilities", guidance_type="memory")
    ((tool, arguments),) = answer["example"].items()
    assert tool in answer["operations"]
    assert arguments


@pytest.mark.parametrize("topic", ["coordination", "security", "troubleshooting"])
async def test_advice_is_returned_by_topic(world: World, topic: str) -> None:
    answer = await world.review.call("agent.capabilities", guidance_type=topic)
    assert answer["operations"] == {}
    assert len(answer["advice"]) >= 5


@pytest.mark.req("WX-01")
async def test_guidance_takes_at_most_600_tokens_for_every_role_and_topic(world: World) -> None:
    count = TokenizerRegistry().named("o200k_base")
    for caller in (world.admin, world.planner, world.review):
        offered: set[str] = set()
        for topic in ("operations", *topics()):
            answer = await caller.call("agent.capabilities", guidance_type=topic)
            assert answer["advice"]
            assert count(json.dumps(answer, separators=(",", ":"))) <= MAX_GUIDANCE_TOKENS, topic
            offered |= {call.partition(" ")[0] for call in answer["operations"]}
        assert offered == await tools(caller)
        board = await caller.call("board.guidance")
        assert count(json.dumps(board, separators=(",", ":"))) <= MAX_GUIDANCE_TOKENS


async def test_a_topic_without_permitted_operations_says_so(world: World) -> None:
    answer = await world.review.call("agent.capabilities", guidance_type="admin")
    assert (answer["operations"], answer["example"]) == ({}, {})
    assert "permits none" in answer["advice"][0]


def test_every_operation_has_a_topic() -> None:
    assert {topic_of(operation.name) for operation in all_operations()} <= set(topics())
