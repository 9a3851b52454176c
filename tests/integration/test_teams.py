"""Teams: who sees them, who manages them, what a membership gives and takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.teams import add_member, create_team, remove_member
from support.world import outcome, refused

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("WX-04")


async def names(by: Caller) -> list[str]:
    return [team["team"] for team in (await by.call("team.list"))["teams"]]


async def team_events(by: Caller) -> list[str]:
    return [event["type"] for event in (await by.events())["events"] if event["type"].startswith("team.")]


@pytest.mark.both_databases
async def test_a_team_is_created_filled_changed_and_deleted(world: World) -> None:
    made = await world.admin.call("team.create", team="research", description="Finds sources")
    assert (made["team"], made["description"], made["members"]) == ("research", "Finds sources", 0)
    assert (await add_member(world.admin, "analysis"))["changed"] is True
    assert (await add_member(world.admin, "analysis"))["changed"] is False
    shown = await world.analysis.call("team.show", team="research")
    assert [(each["agent_id"], each["kind"]) for each in shown["members"]] == [("analysis", "agent")]
    assert (shown["memory_version"], shown["memory_bytes"], shown["layer_version"]) == (0, 0, 0)
    assert (await world.admin.call("team.update", team="research", description="Checks"))["description"] == "Checks"
    assert await names(world.analysis) == ["research"]
    assert (await remove_member(world.admin, "analysis"))["changed"] is True
    assert await names(world.analysis) == []
    deleted = await world.admin.call("team.delete", team="research")
    assert (deleted["members"], deleted["memory_bytes"], deleted["had_layer"]) == (0, 0, False)
    with refused("TEAM_NOT_FOUND"):
        await world.admin.call("team.show", team="research")
    with refused("TEAM_EXISTS"):
        await world.admin.call("team.create", team="research")
    actions = [row["action"] for row in await world.admin.audit() if row["action"].startswith("team.")]
    expected = ["add_member", "add_member", "update", "remove_member", "delete"]
    assert actions[::-1] == ["team.create", *(f"team.{action}" for action in expected)]


@pytest.mark.both_databases
async def test_to_others_a_team_does_not_exist(world: World) -> None:
    await create_team(world.admin, "research", "analysis")
    await create_team(world.admin, "resources", "review-2")
    for outsider in (world.review, world.planner, world.stranger):
        with refused("TEAM_NOT_FOUND") as hidden:
            await outsider.call("team.show", team="research")
        with refused("TEAM_NOT_FOUND") as unknown:
            await outsider.call("team.show", team="researcher")
        for caught in (hidden, unknown):
            caught.value.context.pop("resource_id")
        assert hidden.value.message.replace("research", "researcher") == unknown.value.message
        assert hidden.value.context == unknown.value.context
        assert "research" not in await names(outsider)
    with refused("TEAM_NOT_FOUND") as own:
        await world.review.call("team.show", team="resorces")
    assert own.value.context["available_alternatives"] == ["resources"]
    denied = [row["action"] for row in await world.admin.audit(outcome="denied")]
    assert denied.count("team.show") == 2


async def test_events_of_a_team_are_for_its_members_and_admins(world: World) -> None:
    ada, bob = [await world.admin.create_agent(name, kind="human") for name in ("ada", "bob")]
    await create_team(world.admin, "research", "ada", "bob")
    await remove_member(world.admin, "bob")
    assert await team_events(world.admin) == [
        "team.created",
        "team.member_added",
        "team.member_added",
        "team.member_removed",
    ]
    assert await team_events(ada) == await team_events(world.admin)
    # Who was removed sees only that it was a member.
    assert await team_events(bob) == ["team.member_added", "team.member_removed"]
    assert await team_events(world.planner) == []
    assert await team_events(world.stranger) == []


async def test_members_with_the_clearance_manage_those_below_them(world: World) -> None:
    low = await world.admin.create_agent("low", kind="human", clearance=2)
    lead = await world.admin.create_agent("lead", kind="human", clearance=3)
    await world.admin.create_agent("other", clearance=4)
    await create_team(world.admin, "research", "planner", "low", "lead")
    for by, whom, expected in [
        (world.planner, "analysis", "ok"),
        (world.planner, "other", "AGENT_NOT_FOUND"),
        (world.planner, "nobody", "AGENT_NOT_FOUND"),
        (world.planner, "planner", "PERMISSION_DENIED"),
        (low, "review-2", "PERMISSION_DENIED"),
        (lead, "review-2", "ok"),
        (lead, "other", "AGENT_NOT_FOUND"),
        (world.admin, "admin", "ok"),
        (world.admin, "other", "ok"),
    ]:
        assert await outcome(add_member(by, whom)) == expected, whom
    assert await outcome(remove_member(lead, "review-2")) == "ok"
    assert await outcome(remove_member(lead, "lead")) == "PERMISSION_DENIED"
    for operation in ("create", "update", "delete"):
        fields = {"team": "research", **({"description": "x"} if operation == "update" else {})}
        assert await outcome(world.planner.call(f"team.{operation}", **fields)) == "PERMISSION_DENIED"


@pytest.mark.both_databases
async def test_hostile_callers_neither_join_nor_look_in(world: World) -> None:
    await create_team(world.admin, "research", "planner")
    reader = await world.admin.create_agent("reader", permissions=["read"], clearance=5)
    await add_member(world.admin, "reader")
    # A sub-agent adds itself or another, in its own team or in one it has heard of.
    for team in ("research", "other"):
        for whom in ("analysis", "review-2"):
            assert await outcome(add_member(world.analysis, whom, team)) == "PERMISSION_DENIED"
    await add_member(world.planner, "analysis")
    assert await outcome(add_member(world.analysis, "review-2")) == "PERMISSION_DENIED"
    assert await outcome(remove_member(world.analysis, "analysis")) == "PERMISSION_DENIED"
    # A member that may only read changes nothing, whatever its clearance.
    assert await outcome(add_member(reader, "analysis")) == "PERMISSION_DENIED"
    # Another tenant has a team of the same name, and stays outside.
    await create_team(world.stranger, "research", "admin")
    assert [m["agent_id"] for m in (await world.stranger.call("team.show", team="research"))["members"]] == ["admin"]
    assert await outcome(add_member(world.stranger, "planner")) == "AGENT_NOT_FOUND"
    # A removed member is outside with its next call, also with a token it already has.
    token = await world.analysis.with_token("analysis")
    assert await names(token) == ["research"]
    await remove_member(world.planner, "analysis")
    assert await names(token) == await names(world.analysis) == []


async def test_a_membership_counts_on_every_process_at_once(world: World) -> None:
    elsewhere = world.analysis.at(await world.another_app())
    assert await names(elsewhere) == []
    await create_team(world.admin, "research", "analysis")
    assert await names(elsewhere) == ["research"]
    await world.admin.call("team.delete", team="research")
    assert await names(elsewhere) == []


async def test_teams_and_memberships_are_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.capabilities.teams.service.MAX_MEMBERS", 1)
    await create_team(world.admin, "research", "analysis")
    with refused("TEAM_FULL"):
        await add_member(world.admin, "review-2")
    assert (await add_member(world.admin, "analysis"))["changed"] is False
    monkeypatch.setattr("weft.capabilities.teams.service.MAX_TEAMS_OF_MEMBER", 1)
    await create_team(world.admin, "ops")
    with refused("TEAM_FULL"):
        await add_member(world.admin, "analysis", "ops")


async def test_teams_are_listed_page_by_page(world: World) -> None:
    for team in ("c", "a", "b"):
        await create_team(world.admin, team, "analysis")
    for by in (world.admin, world.analysis):
        page = await by.call("team.list", limit=2)
        assert ([team["team"] for team in page["teams"]], page["has_more"]) == (["a", "b"], True)
        rest = await by.call("team.list", after="b")
        assert ([team["team"] for team in rest["teams"]], rest["has_more"]) == (["c"], False)


async def test_boards_name_teams_in_their_acls(world: World) -> None:
    await create_team(world.admin, "research", "analysis")
    await world.planner.write("secret", "x", readable_by=["team:research"], writable_by=["team:research"])
    assert await world.analysis.value("secret") == "x"
    await world.analysis.write("secret", "y")
    for outsider in (world.review, world.planner):
        assert await outsider.keys() == []
        assert await outcome(outsider.write("secret", "z")) == "PERMISSION_DENIED"
    await remove_member(world.admin, "analysis")
    assert await world.analysis.keys() == []


async def test_sessions_admit_teams(world: World) -> None:
    await create_team(world.admin, "research", "analysis")
    inside = await world.planner.create_session("closed", participants=["team:research"])
    await inside.write("goal", "x")
    assert await world.analysis.in_session("closed").value("goal") == "x"
    assert await outcome(world.review.in_session("closed").keys()) == "SESSION_NOT_FOUND"
    await remove_member(world.admin, "analysis")
    assert await outcome(world.analysis.in_session("closed").keys()) == "SESSION_NOT_FOUND"
