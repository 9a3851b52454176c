"""Teams: who sees them, who manages them, what a membership gives and takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.bundles import exported, imported
from support.teams import add_member, create_team, remove_member
from support.world import SESSION, outcome, refused

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
        (world.planner, "planner", "SELF_MODIFICATION"),
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
            expected = "SELF_MODIFICATION" if whom == "analysis" else "PERMISSION_DENIED"
            assert await outcome(add_member(world.analysis, whom, team)) == expected
    await add_member(world.planner, "analysis")
    assert await outcome(add_member(world.analysis, "review-2")) == "PERMISSION_DENIED"
    assert await outcome(remove_member(world.analysis, "analysis")) == "SELF_MODIFICATION"
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
    monkeypatch.setattr("weftline.sessions.team_operations.MAX_MEMBERS", 1)
    await create_team(world.admin, "research", "analysis")
    with refused("TEAM_FULL"):
        await add_member(world.admin, "review-2")
    assert (await add_member(world.admin, "analysis"))["changed"] is False
    monkeypatch.setattr("weftline.sessions.team_operations.MAX_TEAMS_OF_MEMBER", 1)
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
    await create_team(world.admin, "research", "analysis", "planner")
    inside = await world.planner.create_session("closed", members=["team:research"])
    await inside.write("goal", "x")
    assert await world.analysis.in_session("closed").value("goal") == "x"
    assert await outcome(world.review.in_session("closed").keys()) == "SESSION_NOT_FOUND"
    await remove_member(world.admin, "analysis")
    assert await outcome(world.analysis.in_session("closed").keys()) == "SESSION_NOT_FOUND"


@pytest.mark.both_databases
async def test_messages_to_a_team_are_for_its_members(world: World) -> None:
    await create_team(world.admin, "research", "analysis", "review-2")
    await world.planner.say("For all.")
    number = await world.analysis.say("The kettle is broken.", team="research")
    assert await world.review.message_texts() == ["For all.", "The kettle is broken."]
    (_, shown) = (await world.review.messages())["messages"]
    assert shown["visibility"] == "team:research"
    assert await world.planner.message_texts() == ["For all."]
    assert await world.review.found("kettle") == ["The kettle is broken."]
    assert await world.planner.found("kettle") == []
    events = [e["subject"] for e in (await world.review.events(session_id=SESSION))["events"]]
    assert str(number) in events
    assert str(number) not in [e["subject"] for e in (await world.planner.events(session_id=SESSION))["events"]]
    for sender in (world.planner, world.review):
        with refused("TEAM_NOT_FOUND"):
            await sender.say("Hello?", team="ops")
    with refused("TEAM_NOT_FOUND"):
        await world.planner.say("Hello?", team="research")
    with refused("INVALID_INPUT_FORMAT"):
        await world.review.say("Hello?", team="research", visibility="private")
    with refused("MESSAGE_NOT_FOUND"):
        await world.planner.say("Me too.", parent_message_id=number)
    await world.index_sessions()

    async def retrieved(by: Caller) -> list[int]:
        results = (await by.call("search.query", query="kettle", session_id=SESSION, sources=["message"]))["results"]
        return [result["message_id"] for result in results]

    assert number in await retrieved(world.review)
    assert number not in await retrieved(world.planner)
    await remove_member(world.admin, "review-2")
    assert await world.review.message_texts() == ["For all."]
    assert await world.review.found("kettle") == []
    assert number not in await retrieved(world.review)


async def test_messages_to_a_team_move_with_their_session(world: World) -> None:
    await create_team(world.admin, "research", "analysis", "admin")
    await world.analysis.say("The kettle is broken.", team="research")
    bundle = await exported(world.admin)
    await imported(world.stranger, bundle)
    assert await world.stranger.message_texts() == []
    await create_team(world.stranger, "research", "admin")
    assert await world.stranger.message_texts() == ["The kettle is broken."]


async def test_windows_are_routed_to_teams(world: World) -> None:
    await create_team(world.admin, "research", "planner", "analysis")
    await world.planner.call(
        "context.ingest",
        session_id=SESSION,
        events=[{"event_id": "e1", "role": "user", "content": "The kettle is broken."}],
    )
    route = {"session_id": SESSION, "categories": ["DIALOG"]}
    routed = await world.planner.call("window.route", **route, to_teams=["research"])
    assert routed["routes"] == [{"agent_id": "planner", "category": "DIALOG", "to_team": "research"}]

    for by in (world.analysis, world.review):
        await by.call("window.create", session_id=SESSION)

    async def seen(by: Caller) -> list[str]:
        return [event["event_id"] for event in (await by.call("window.events", session_id=SESSION))["events"]]

    assert await seen(world.analysis) == ["e1"]
    assert await seen(world.review) == []
    shown = await world.planner.call("window.events", session_id=SESSION, agent_id="analysis")
    assert len(shown["events"]) == 1
    await remove_member(world.admin, "analysis")
    assert await seen(world.analysis) == []
    assert await outcome(world.planner.call("window.route", **route, to_teams=["ops"])) == "TEAM_NOT_FOUND"
    unrouted = await world.planner.call("window.unroute", **route, to_teams=["research"])
    assert unrouted["routes"] == []


async def test_domains_and_export_policies_name_teams(world: World) -> None:
    await create_team(world.admin, "research", "planner")
    await world.admin.call("knowledge.create_domain", domain="papers", agents=["team:research"])
    await world.admin.call("policy.set", name="papers", definition={"description": "x", "who": ["team:research"]})
    other = await world.admin.create_agent("other", clearance=3)
    await world.planner.admit("other")
    for by, member in ((world.planner, True), (other, False)):
        domains = [each["domain"] for each in (await by.call("knowledge.list_domains"))["domains"]]
        assert ("papers" in domains) is member
        export = by.call("bundle.export", session_id=SESSION, policy="papers")
        assert await outcome(export) == ("ok" if member else "POLICY_FORBIDDEN")
    await remove_member(world.admin, "planner")
    assert (await world.planner.call("knowledge.list_domains"))["domains"] == []
