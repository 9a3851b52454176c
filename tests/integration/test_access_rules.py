"""Who may do what to whom, and what is written down about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import refused

if TYPE_CHECKING:
    from support.world import World


async def test_agents_are_shown_with_the_name_others_see(world: World) -> None:
    agents = (await world.admin.call("agent.list"))["agents"]
    assert {agent["agent_id"]: agent["participant"] for agent in agents} == {
        "admin": "human:admin",
        "planner": "orchestrator",
        "analysis": "subagent:analysis",
        "review-2": "subagent:review:review-2",
    }


async def test_agents_are_listed_page_by_page(world: World) -> None:
    first = await world.admin.call("agent.list", limit=3)
    second = await world.admin.call("agent.list", limit=3, after=first["agents"][-1]["agent_id"])
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert [a["agent_id"] for a in first["agents"] + second["agents"]] == ["admin", "analysis", "planner", "review-2"]


async def test_an_agent_s_id_is_taken_once_and_its_parent_must_exist(world: World) -> None:
    with refused("AGENT_EXISTS"):
        await world.admin.create_agent("planner")
    with refused("INVALID_PARENT"):
        await world.admin.create_agent("new", parent_id="nobody")
    await world.admin.call("agent.update", agent_id="planner", disabled=True)
    with refused("INVALID_PARENT"):
        await world.admin.create_agent("new", parent_id="planner")


@pytest.mark.req("SC-17")
async def test_administration_needs_the_admin_permission(world: World) -> None:
    for operation, raw in (
        ("agent.create", {"agent_id": "mine"}),
        ("agent.list", {}),
        ("agent.update", {"agent_id": "review-2", "permissions": ["read", "write", "admin"]}),
        ("key.create", {"agent_id": "admin"}),
        ("key.list", {"agent_id": "admin"}),
        ("key.revoke", {"key_id": "key_1"}),
        ("signing_key.rotate", {}),
        ("audit.list", {}),
        ("session.inspect", {"session_id": "s1"}),
    ):
        with refused("PERMISSION_DENIED"):
            await world.planner.call(operation, **raw)


async def test_nobody_edits_itself(world: World) -> None:
    for change in ({"permissions": ["admin"]}, {"clearance": 5}, {"disabled": False}):
        with refused("PERMISSION_DENIED"):
            await world.admin.call("agent.update", agent_id="admin", **change)


async def test_an_admin_reaches_no_higher_than_its_own_clearance(world: World) -> None:
    every = ["read", "write", "admin"]
    deputy = await world.admin.create_agent("deputy", clearance=3, permissions=every)
    await world.admin.create_agent("chief", clearance=4)
    for operation, raw in (
        ("agent.create", {"agent_id": "new", "clearance": 4}),
        ("agent.update", {"agent_id": "planner", "clearance": 4}),
        ("agent.update", {"agent_id": "chief", "disabled": True}),
        ("key.create", {"agent_id": "chief"}),
        ("key.rotate", {"key_id": world.admin.key_id}),
        ("key.revoke", {"key_id": world.admin.key_id}),
    ):
        with refused("PERMISSION_DENIED"):
            await deputy.call(operation, **raw)
    await deputy.call("agent.create", agent_id="new", clearance=3)
    await deputy.call("agent.update", agent_id="planner", clearance=2)


async def test_a_sub_agent_administers_nothing_even_as_admin(world: World) -> None:
    every = ["read", "write", "admin"]
    powerful = await world.admin.create_agent("powerful", parent_id="planner", permissions=every, clearance=5)
    for operation, raw in (
        ("agent.create", {"agent_id": "mine"}),
        ("agent.list", {}),
        ("agent.update", {"agent_id": "planner", "disabled": True}),
        ("key.create", {"agent_id": "planner"}),
        ("signing_key.rotate", {}),
        ("conventions.define", {"name": "x", "groups": []}),
    ):
        with refused("PERMISSION_DENIED"):
            await powerful.call(operation, **raw)


async def test_disabling_acts_at_once_in_every_process_and_can_be_undone(world: World) -> None:
    elsewhere = world.analysis.at(await world.another_app())
    await elsewhere.list()
    assert (await world.admin.call("agent.update", agent_id="analysis", disabled=True))["disabled"] is True
    for caller in (elsewhere, world.analysis):
        with refused("AUTHENTICATION_ERROR"):
            await caller.list()
    await world.admin.call("agent.update", agent_id="analysis", disabled=False)
    await elsewhere.list()


@pytest.mark.req("MS-13")
async def test_every_administrative_act_is_on_record(world: World) -> None:
    made = await world.admin.call("key.create", agent_id="planner")
    await world.admin.call("key.rotate", key_id=made["key_id"])
    await world.admin.call("key.revoke", key_id=world.review.key_id)
    await world.admin.call("agent.update", agent_id="analysis", clearance=2)
    await world.admin.call("signing_key.rotate")
    await world.planner.snapshot("mark")
    await world.planner.restore("mark")
    await world.planner.call("session.archive", session_id="s1")
    await world.planner.call("session.delete", session_id="s1")
    rows = [(row["action"], row["principal_id"], row["target"]) for row in await world.admin.audit(outcome="done")]
    assert rows[::-1] == [
        ("agent.create", "admin", "planner"),
        ("agent.create", "admin", "analysis/planner"),
        ("agent.create", "admin", "review-2/planner"),
        ("key.create", "admin", "planner"),
        ("key.rotate", "admin", made["key_id"]),
        ("key.revoke", "admin", world.review.key_id),
        ("agent.update", "admin", "analysis"),
        ("signing_key.rotate", "admin", ""),
        ("board.restore_snapshot", "planner", "s1/mark"),
        ("session.archive", "planner", "s1"),
        ("session.delete", "planner", "s1"),
    ]


@pytest.mark.req("MS-13")
async def test_every_denial_is_on_record_with_its_reason(world: World) -> None:
    with refused("PERMISSION_DENIED"):
        await world.analysis.call("session.list")
    with refused("PERMISSION_DENIED"):
        await world.planner.audit()
    await world.review.write("verdict", writable_by=["subagent:review:*"])
    with refused("PERMISSION_DENIED"):
        await world.analysis.write("verdict")
    with refused("INVALID_API_KEY"):
        await world.planner.with_credential(world.planner.credential + "x").list()
    with refused("AUTHENTICATION_ERROR"):
        await world.planner.token("planner", "wrong")
    denied = (await world.admin.audit(outcome="denied"))[::-1]
    assert [(row["action"], row["actor"], row["detail"]["code"]) for row in denied] == [
        ("session.list", "subagent:analysis", "PERMISSION_DENIED"),
        ("audit.list", "orchestrator", "PERMISSION_DENIED"),
        ("board.write", "subagent:analysis", "PERMISSION_DENIED"),
        ("authenticate", "unknown", "INVALID_API_KEY"),
        ("token.issue", "unknown", "AUTHENTICATION_ERROR"),
    ]


@pytest.mark.req("MS-13")
async def test_the_audit_log_is_read_page_by_page_newest_first(world: World) -> None:
    for number in range(5):
        await world.admin.create_agent(f"a{number}")
    first = await world.admin.call("audit.list", limit=3)
    assert [row["target"] for row in first["entries"]] == ["a4", "a3", "a2"]
    assert first["has_more"] is True
    second = await world.admin.call("audit.list", limit=100, before=first["entries"][-1]["audit_id"])
    assert [row["target"] for row in second["entries"]][:2] == ["a1", "a0"]
    assert second["has_more"] is False


@pytest.mark.req("MS-13")
async def test_a_refused_act_is_not_recorded_as_done(world: World) -> None:
    with refused("SESSION_NOT_FOUND"):
        await world.planner.call("session.archive", session_id="none")
    assert "session.archive" not in [row["action"] for row in await world.admin.audit()]
