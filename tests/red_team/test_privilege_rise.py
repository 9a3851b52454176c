"""Threat: an agent gets more rights than it was given: by those it creates, by keys, sessions, teams or jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.red_team import EVERYTHING, blocked
from support.world import SESSION

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("CE-F31"), pytest.mark.req("CE-F34"), pytest.mark.req("CE-V", part="immutability")]


@pytest.fixture
async def eve(world: World) -> Caller:
    """Return an orchestrator with the permissions of most agents, clearance 2 and one sub-agent."""
    eve = await world.admin.create_agent("eve", agent_type="planning", clearance=2)
    await world.admin.create_agent("minion", parent_id="eve", agent_type="minion")
    return eve


# Each: operation, request, the codes that refuse it.
ATTEMPTS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "creates an agent with a higher clearance": (
        "agent.create",
        {"agent_id": "big", "clearance": 3},
        ("PERMISSION_DENIED",),
    ),
    "creates an agent with more permissions": (
        "agent.create",
        {"agent_id": "big", "permissions": ["admin"]},
        ("PERMISSION_DENIED",),
    ),
    "creates a human": ("agent.create", {"agent_id": "big", "kind": "human"}, ("PERMISSION_DENIED",)),
    "creates an agent in another tree": (
        "agent.create",
        {"agent_id": "big", "parent_id": "planner"},
        ("PERMISSION_DENIED",),
    ),
    "creates an agent of a type that others have": (
        "agent.create",
        {"agent_id": "big", "agent_type": "review"},
        ("PERMISSION_DENIED",),
    ),
    "takes the name of an agent": ("agent.create", {"agent_id": "minion"}, ("AGENT_EXISTS",)),
    "takes the name of the system": ("agent.create", {"agent_id": "system"}, ("AGENT_EXISTS",)),
    "raises an agent below it": ("agent.update", {"agent_id": "minion", "clearance": 3}, ("PERMISSION_DENIED",)),
    "grants an agent below it more": (
        "agent.update",
        {"agent_id": "minion", "permissions": EVERYTHING},
        ("PERMISSION_DENIED",),
    ),
    "disables an admin": ("agent.update", {"agent_id": "admin", "disabled": True}, ("PERMISSION_DENIED",)),
    "changes another tree": ("agent.update", {"agent_id": "analysis", "clearance": 1}, ("PERMISSION_DENIED",)),
    "defines another tree": ("agent.define", {"agent_id": "analysis", "role": "x"}, ("PERMISSION_DENIED",)),
    "makes a key of an admin": ("key.create", {"agent_id": "admin"}, ("PERMISSION_DENIED",)),
    "makes a key of another tree": ("key.create", {"agent_id": "analysis"}, ("PERMISSION_DENIED",)),
    "lists the keys of an admin": ("key.list", {"agent_id": "admin"}, ("PERMISSION_DENIED",)),
    "replaces the signing key": ("signing_key.rotate", {}, ("PERMISSION_DENIED",)),
    "adds itself to a session": (
        "session.add_members",
        {"session_id": SESSION, "members": ["eve"]},
        ("SESSION_NOT_FOUND",),
    ),
    "reads a session of others": ("board.list_keys", {"session_id": SESSION}, ("SESSION_NOT_FOUND",)),
    "reinstates agents": (
        "session.reinstate",
        {"session_id": SESSION, "agent_id": "minion"},
        ("PERMISSION_DENIED",),
    ),
    "creates a team": ("team.create", {"team": "mine"}, ("PERMISSION_DENIED",)),
    "sets retention": ("history.set_retention", {"subject": "board", "days": 1}, ("PERMISSION_DENIED",)),
    "prunes history": ("history.prune", {}, ("PERMISSION_DENIED",)),
    "reads the audit log": ("audit.list", {}, ("PERMISSION_DENIED",)),
    "reads the private memory of an agent": ("memory.inspect", {"agent_id": "analysis"}, ("PERMISSION_DENIED",)),
    "reads a definition of another tree": ("agent.read_definition", {"agent_id": "analysis"}, ("AGENT_NOT_FOUND",)),
    "copies the memory of another tree": (
        "context.copy",
        {"agent_id": "minion", "from_agent_id": "analysis"},
        ("PERMISSION_DENIED",),
    ),
    "creates a webhook": ("webhook.create", {"url": "https://receiver.invalid/"}, ("PERMISSION_DENIED",)),
    "adds a source": ("knowledge.add_source", {"domain": "handbook", "kind": "hook"}, ("PERMISSION_DENIED",)),
    "sets an export policy": ("policy.set", {"name": "outside", "definition": {}}, ("PERMISSION_DENIED",)),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
async def test_an_agent_gets_no_more_than_it_has(world: World, eve: Caller, attempt: str) -> None:
    operation, raw, codes = ATTEMPTS[attempt]
    if codes == ("AGENT_EXISTS",):  # no secret: ids are unique, and nothing was denied
        with pytest.raises(Exception, match="exists"):
            await eve.call(operation, **raw)
        return
    await blocked(world, eve.call(operation, **raw), *codes)


async def test_a_key_of_a_stronger_agent_stays_out_of_reach(world: World, eve: Caller) -> None:
    """An agent below that was given more by an admin: its parent does not get its key, old or new."""
    strong = await world.admin.create_agent("strong", parent_id="eve", clearance=4, permissions=EVERYTHING)
    await blocked(world, eve.call("key.create", agent_id="strong"), "PERMISSION_DENIED")
    await blocked(world, eve.call("key.rotate", key_id=strong.key_id), "PERMISSION_DENIED")
    await blocked(world, eve.call("agent.define", agent_id="strong", role="mine"), "PERMISSION_DENIED")
    await blocked(world, eve.call("agent.update", agent_id="strong", clearance=1), "PERMISSION_DENIED")
    await blocked(world, eve.call("key.revoke", key_id=world.admin.key_id), "API_KEY_NOT_FOUND")


async def test_an_admin_that_is_an_agent_gets_no_human(world: World) -> None:
    lead = await world.admin.create_agent("lead", clearance=5, permissions=EVERYTHING)
    for operation, raw in [
        ("key.create", {"agent_id": "admin"}),
        ("key.rotate", {"key_id": world.admin.key_id}),
        ("agent.update", {"agent_id": "admin", "clearance": 1}),
        ("agent.create", {"agent_id": "puppet", "kind": "human"}),
        ("agent.define", {"agent_id": "planner", "role": "x"}),
    ]:
        await blocked(world, lead.call(operation, **raw), "PERMISSION_DENIED")


async def test_a_disabled_agent_and_those_below_it_come_back_only_by_others(world: World, eve: Caller) -> None:
    minion = await eve.call("key.create", agent_id="minion")
    await world.admin.call("agent.update", agent_id="eve", disabled=True)
    for caller in (eve, eve.with_credential(minion["api_key"])):
        await blocked(world, caller.call("agent.capabilities"), "AUTHENTICATION_ERROR", "INVALID_API_KEY")
