"""Permissions and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import refused
from weftline.sessions.events.model import EventFilter

if TYPE_CHECKING:
    from support.world import World

EVERY = ["read", "write", "admin"]


async def test_agents_are_shown_with_their_public_name(world: World) -> None:
    agents = (await world.admin.call("agent.list"))["agents"]
    assert {agent["agent_id"]: agent["participant"] for agent in agents} == {
        "admin": "human:admin",
        "planner": "orchestrator:planner",
        "analysis": "subagent:analysis",
        "review-2": "subagent:review:review-2",
    }


async def test_agents_are_listed_page_by_page(world: World) -> None:
    first = await world.admin.call("agent.list", limit=3)
    second = await world.admin.call("agent.list", limit=3, after=first["agents"][-1]["agent_id"])
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert [a["agent_id"] for a in first["agents"] + second["agents"]] == ["admin", "analysis", "planner", "review-2"]


async def test_agent_ids_are_unique_and_parents_must_exist(world: World) -> None:
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
        ("agent.create", {"agent_id": "mine", "parent_id": "admin"}),
        ("agent.update", {"agent_id": "review-2", "permissions": ["read", "write", "admin"]}),
        ("key.create", {"agent_id": "admin"}),
        ("key.list", {"agent_id": "admin"}),
        ("signing_key.rotate", {}),
        ("audit.list", {}),
        ("session.inspect", {"session_id": "s1"}),
    ):
        with refused("PERMISSION_DENIED"):
            await world.planner.call(operation, **raw)


async def test_a_principal_cannot_edit_itself(world: World) -> None:
    for change in ({"permissions": ["admin"]}, {"clearance": 5}, {"disabled": False}):
        with refused("PERMISSION_DENIED"):
            await world.admin.call("agent.update", agent_id="admin", **change)


async def test_an_admin_administers_only_up_to_its_clearance(world: World) -> None:
    deputy = await world.admin.create_agent("deputy", kind="human", clearance=3, permissions=EVERY)
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


async def test_an_agent_administers_only_its_descendants(world: World) -> None:
    lead = await world.admin.create_agent("lead", clearance=3, permissions=EVERY)
    helper = await lead.create_agent("helper", parent_id="lead")
    grandchild = await lead.create_agent("grandchild", parent_id="helper", clearance=3)
    await world.admin.create_agent("cleared", parent_id="helper", clearance=4)
    token = await world.planner.token("planner", "planning")
    token_id = (await world.rows("SELECT token_id FROM access_tokens WHERE tenant = $1", world.tenant))[0][0]
    for operation, raw in (
        ("agent.update", {"agent_id": "lead", "disabled": False}),
        ("agent.update", {"agent_id": "planner", "disabled": True}),
        ("agent.update", {"agent_id": "analysis", "clearance": 1}),
        ("agent.update", {"agent_id": "cleared", "disabled": True}),
        ("key.create", {"agent_id": "planner"}),
        ("key.create", {"agent_id": "cleared"}),
        ("key.rotate", {"key_id": world.analysis.key_id}),
        ("key.revoke", {"key_id": world.planner.key_id}),
        ("token.revoke", {"token_id": token_id}),
    ):
        with refused("SELF_MODIFICATION" if raw.get("agent_id") == "lead" else "PERMISSION_DENIED"):
            await lead.call(operation, **raw)
    await world.planner.with_credential(token).list()
    await lead.call("agent.update", agent_id="grandchild", clearance=2, permissions=["read"])
    await lead.call("key.create", agent_id="grandchild")
    await lead.call("key.rotate", key_id=grandchild.key_id)
    await lead.call("key.revoke", key_id=helper.key_id)
    with refused("INVALID_API_KEY"):
        await helper.list()


async def test_an_agent_creates_only_descendants(world: World) -> None:
    lead = await world.admin.create_agent("lead", permissions=EVERY)
    await lead.create_agent("child", parent_id="lead")
    await lead.create_agent("grandchild", parent_id="child")
    for parent_id in ("admin", "planner", "analysis"):
        with refused("PERMISSION_DENIED"):
            await lead.create_agent("elsewhere", parent_id=parent_id)
    with refused("PERMISSION_DENIED"):  # as a human, it would reach everyone
        await lead.create_agent("puppet", parent_id="lead", kind="human")
    await world.admin.create_agent("dana", parent_id="lead", kind="human")
    with refused("PERMISSION_DENIED"):
        await lead.call("key.create", agent_id="dana")


async def test_a_principal_cannot_grant_permissions_it_does_not_hold(world: World) -> None:
    keeper = await world.admin.create_agent("keeper", kind="human", permissions=["read", "admin"])
    for operation, raw in (
        ("agent.create", {"agent_id": "new"}),
        ("agent.update", {"agent_id": "review-2", "permissions": ["read", "write"]}),
        ("key.create", {"agent_id": "review-2"}),
        ("key.rotate", {"key_id": world.review.key_id}),
    ):
        with refused("PERMISSION_DENIED"):
            await keeper.call(operation, **raw)
    assert (await keeper.call("agent.update", agent_id="review-2", disabled=True))["permissions"] == ["read", "write"]
    await keeper.call("agent.update", agent_id="review-2", permissions=["read"])
    await keeper.call("key.rotate", key_id=world.review.key_id)


async def test_a_narrowed_token_is_not_widened_by_a_key(world: World) -> None:
    reader = await world.planner.with_token("planner", "planning", requested_permissions=["read"])
    with refused("PERMISSION_DENIED"):
        await reader.call("key.rotate", key_id=world.planner.key_id)
    manager = await world.admin.with_token("admin", requested_permissions=["admin"])
    with refused("PERMISSION_DENIED"):
        await manager.call("key.create", agent_id="admin")


async def test_a_cycle_of_parents_is_permission_denied(world: World) -> None:
    lead = await world.admin.create_agent("lead", permissions=EVERY)
    loop = "UPDATE principals SET parent_id = $1 WHERE tenant = $2 AND principal_id = $3"
    await world.sql(loop, "analysis", world.tenant, "planner")
    with refused("PERMISSION_DENIED"):
        await lead.call("agent.update", agent_id="review-2", disabled=True)


async def test_a_sub_agent_administers_nothing_even_as_admin(world: World) -> None:
    powerful = await world.admin.create_agent("powerful", parent_id="planner", permissions=EVERY, clearance=5)
    for operation, raw in (
        ("agent.create", {"agent_id": "mine"}),
        ("agent.update", {"agent_id": "planner", "disabled": True}),
        ("key.create", {"agent_id": "planner"}),
        ("signing_key.rotate", {}),
        ("conventions.define", {"name": "x", "groups": []}),
    ):
        with refused("PERMISSION_DENIED"):
            await powerful.call(operation, **raw)


async def test_disabling_takes_effect_at_once_in_every_process_and_is_reversible(world: World) -> None:
    in_other_process = world.analysis.at(await world.another_app())
    await in_other_process.list()
    assert (await world.admin.call("agent.update", agent_id="analysis", disabled=True))["disabled"] is True
    for caller in (in_other_process, world.analysis):
        with refused("AUTHENTICATION_ERROR"):
            await caller.list()
    await world.admin.call("agent.update", agent_id="analysis", disabled=False)
    await in_other_process.list()


@pytest.mark.req("MS-13")
async def test_every_administrative_call_is_audited(world: World) -> None:
    made = await world.admin.call("key.create", agent_id="planner")
    await world.admin.call("key.rotate", key_id=made["key_id"])
    await world.admin.call("key.revoke", key_id=world.review.key_id)
    await world.admin.call("agent.update", agent_id="analysis", clearance=2)
    await world.admin.call("signing_key.rotate")
    await world.planner.snapshot("mark")
    await world.planner.restore("mark")
    await world.planner.call("session.archive", session_id="s1")
    await world.planner.call("session.delete", session_id="s1")
    rows = [(row["action"], row["agent_id"], row["target"]) for row in await world.admin.audit(outcome="done")]
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
async def test_every_denial_is_audited_with_its_reason(world: World) -> None:
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
        ("audit.list", "orchestrator:planner", "PERMISSION_DENIED"),
        ("board.write", "subagent:analysis", "PERMISSION_DENIED"),
    ]
    failed = (await world.admin.audit(outcome="refused"))[::-1]
    assert [(row["action"], row["actor"], row["detail"]["code"]) for row in failed] == [
        ("authenticate", "unknown", "INVALID_API_KEY"),
        ("token.issue", "unknown", "AUTHENTICATION_ERROR"),
    ]


@pytest.mark.req("MS-13")
async def test_a_denial_disguised_as_not_found_is_audited(world: World) -> None:
    await world.planner.create_session("closed", members=["orchestrator"])
    outside = world.analysis.in_session("closed")
    for attempt in (outside.list(), outside.write("goal"), outside.events(session_id="closed")):
        with refused("SESSION_NOT_FOUND"):
            await attempt
    with refused("SESSION_NOT_FOUND"):
        await anext(outside.follow(EventFilter("closed"), 0))
    with refused("API_KEY_NOT_FOUND"):
        await world.analysis.call("key.rotate", key_id=world.planner.key_id)
    with refused("SESSION_NOT_FOUND"):
        await world.analysis.in_session("none").list()
    with refused("API_KEY_NOT_FOUND"):
        await world.analysis.call("key.rotate", key_id="key_0")
    denied = (await world.admin.audit(outcome="denied"))[::-1]
    assert [(row["action"], row["agent_id"], row["detail"]["code"]) for row in denied] == [
        ("board.list_keys", "analysis", "SESSION_NOT_FOUND"),
        ("board.write", "analysis", "SESSION_NOT_FOUND"),
        ("events.read", "analysis", "SESSION_NOT_FOUND"),
        ("events.read", "analysis", "SESSION_NOT_FOUND"),
        ("key.rotate", "analysis", "API_KEY_NOT_FOUND"),
    ]


@pytest.mark.req("MS-13")
async def test_following_events_is_authorised_and_audited(world: World) -> None:
    writer = await world.admin.create_agent("writer", permissions=["write"])
    with refused("PERMISSION_DENIED"):
        await anext(writer.follow(EventFilter(), 0))
    denied = (await world.admin.audit(outcome="denied"))[0]
    assert (denied["action"], denied["agent_id"]) == ("events.read", "writer")


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
async def test_a_refused_call_is_not_audited_as_done(world: World) -> None:
    with refused("SESSION_NOT_FOUND"):
        await world.planner.call("session.archive", session_id="none")
    assert "session.archive" not in [row["action"] for row in await world.admin.audit()]
