"""Attackers of the red team suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.red_team import EVERYTHING

if TYPE_CHECKING:
    from support.world import Caller, World


@pytest.fixture
async def mallory(world: World) -> Caller:
    """Return the strongest agent there can be: an orchestrator with every permission and clearance.

    It has a definition, guidelines of its team, a sub-agent, a session and memory with a branch.
    """
    admin = world.admin
    mallory = await admin.create_agent("mallory", clearance=5, permissions=EVERYTHING)
    await admin.create_agent("pawn", parent_id="mallory", permissions=EVERYTHING)
    await admin.call("team.create", team="ops")
    for member in ("mallory", "pawn", "admin"):
        await admin.call("team.add_member", team="ops", agent_id=member)
    await admin.call("agent.define", agent_id="mallory", role="helper")
    await mallory.call("context.push", knowledge=[{"key": "a", "value": 1}], if_version=1)
    await mallory.call("history.branch", context_id="context:mallory", branch="old")
    await admin.call("layer.define", layer="tenant", text="Draft.")
    await admin.call("layer.define", layer="tenant", text="Never delete anything.")
    await admin.call("layer.define", layer="team:ops", text="Cite every source.")
    await admin.call("agent.define", agent_id="mallory", role="clerk", system_prompt="Serve.", config={"n": 1})
    await mallory.create_session("hers", members=["*"])
    return mallory.in_session("hers")
