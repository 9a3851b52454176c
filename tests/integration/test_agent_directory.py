"""agent.list: whom a caller may address, and what it learns of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("WX-03")


async def names(caller: Caller, **fields: Any) -> list[str]:
    return [each["agent_id"] for each in (await caller.call("agent.list", **fields))["agents"]]


@pytest.fixture
async def grown(world: World) -> World:
    """Add an orchestrator with a sub-agent to the tenant, which are not near the planner."""
    await world.admin.create_agent("rival", agent_type="planning")
    await world.admin.create_agent("rival-helper", agent_type="helper", parent_id="rival")
    await world.admin.create_agent("checker", agent_type="check", parent_id="review-2")
    return world


async def test_agents_list_those_near_them_in_the_tree(grown: World) -> None:
    assert await names(grown.planner) == ["analysis", "checker", "review-2"]
    assert await names(grown.review) == ["analysis", "checker", "planner"]
    assert await names(grown.analysis) == ["planner", "review-2"]
    assert {"rival", "rival-helper", "planner", "checker"} <= set(await names(grown.admin))


async def test_others_see_short_public_fields_and_admins_all(grown: World) -> None:
    (entry,) = [each for each in (await grown.analysis.call("agent.list"))["agents"] if each["agent_id"] == "review-2"]
    assert entry == {
        "agent_id": "review-2",
        "agent_type": "review",
        "kind": "agent",
        "participant": "subagent:review:review-2",
    }
    boss = await grown.admin.create_agent("boss", parent_id="planner", permissions=["read", "write", "admin"])
    assert all(each.keys() == entry.keys() for each in (await boss.call("agent.list"))["agents"])
    whole = (await grown.admin.call("agent.list"))["agents"]
    assert all({"permissions", "clearance", "disabled", "parent_id"} <= each.keys() for each in whole)


async def test_teammates_are_listed_and_disabled_agents_are_not(grown: World) -> None:
    await grown.admin.call("team.create", team="crew", description="x")
    for member in ("analysis", "rival-helper"):
        await grown.admin.call("team.add_member", team="crew", agent_id=member)
    assert await names(grown.analysis) == ["planner", "review-2", "rival-helper"]
    await grown.admin.call("agent.update", agent_id="rival-helper", disabled=True)
    assert await names(grown.analysis) == ["planner", "review-2"]
    assert "rival-helper" in await names(grown.admin)


async def test_the_members_of_a_session_are_listed_to_its_members(grown: World) -> None:
    await grown.admin.call("team.create", team="crew", description="x")
    for member in ("rival-helper", "planner"):
        await grown.admin.call("team.add_member", team="crew", agent_id=member)
    await grown.planner.create_session("closed", members=["subagent:review:*", "team:crew"])
    assert await names(grown.planner, session_id="closed") == ["review-2", "rival-helper"]
    assert await names(grown.review, session_id="closed") == ["planner", "rival-helper"]
    assert await names(grown.admin, session_id="closed") == ["planner", "review-2", "rival-helper"]
    with refused("SESSION_NOT_FOUND"):
        await grown.analysis.call("agent.list", session_id="closed")


async def test_whoever_is_listed_can_be_addressed(grown: World) -> None:
    for name in await names(grown.analysis, session_id="s1"):
        await grown.analysis.say("hello", recipient_id=name)
    with refused("RECIPIENT_NOT_FOUND"):
        await grown.analysis.say("hello", recipient_id="nobody")


async def test_lists_are_paged(grown: World) -> None:
    for fields in ({}, {"session_id": "s1"}):
        everyone = await names(grown.review, **fields)
        paged: list[str] = []
        while True:
            page = await grown.review.call("agent.list", **fields, limit=1, after=paged[-1] if paged else None)
            paged += [each["agent_id"] for each in page["agents"]]
            if not page["has_more"]:
                break
        assert paged == everyone
