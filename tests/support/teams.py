"""Helpers for teams of agents and humans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.world import Caller


async def create_team(by: Caller, team: str = "research", *members: str) -> None:
    await by.call("team.create", team=team)
    for member in members:
        await add_member(by, member, team)


async def add_member(by: Caller, agent_id: str, team: str = "research") -> Any:
    return await by.call("team.add_member", team=team, agent_id=agent_id)


async def remove_member(by: Caller, agent_id: str, team: str = "research") -> Any:
    return await by.call("team.remove_member", team=team, agent_id=agent_id)
