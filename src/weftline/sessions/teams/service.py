"""Teams as one caller sees them: members see theirs, admins all; to others they do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.access.grants import check_may_edit
from weftline.access.model import AgentNotFound
from weftline.access.sql import AccessStore
from weftline.access.teams.model import MAX_MEMBERS, MAX_TEAMS_OF_MEMBER, TeamFull, TeamNotFound
from weftline.access.teams.sql import TeamStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import PermissionDenied, close_names
from weftline.kernel.events import EventType, NewEvent, Outbox
from weftline.kernel.identity import PERMISSION, PRINCIPAL, TEAM, Actor, Permission, PrincipalKind
from weftline.safety.trust.gate import ContentGate, IncomingContent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.access.model import Principal
    from weftline.access.teams.model import Team

_ADMINS = f"{PERMISSION}{Permission.ADMIN}"


class Teams(msgspec.Struct, frozen=True):
    """The teams of a tenant, for the caller of one operation."""

    actor: Actor
    access: AccessStore
    store: TeamStore
    outbox: Outbox
    clock: Clock
    gate: ContentGate

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def described(self, name: str, description: str) -> str:
        """Return a description as the gate admits it."""
        return (await self.gate.admit(IncomingContent("team", name, description))).text

    async def find(self, name: str) -> Team:
        """Return a team that the caller may see; TeamNotFound otherwise."""
        return self._visible(name, await self.store.find(name))

    async def lock(self, name: str) -> Team:
        """Return a team that the caller may see, locked until the transaction ends."""
        return self._visible(name, await self.store.lock(name))

    async def add_member(self, team: Team, agent_id: str) -> bool:
        """Add a member to a locked team; False if it is one already."""
        member = await self._manageable_member(agent_id)
        taken = team.members, len(await self.store.of_member(member.principal_id))
        if not await self.store.add_member(team.team, member.principal_id, self.actor.participant, self.now):
            return False
        for count, limit in zip(taken, (MAX_MEMBERS, MAX_TEAMS_OF_MEMBER), strict=True):
            if count >= limit:
                raise TeamFull(
                    f"A team has at most {MAX_MEMBERS} members, and a member at most {MAX_TEAMS_OF_MEMBER} teams.",
                    members=taken[0],
                    teams_of_member=taken[1],
                )
        await self.access.advance_epoch()
        await self.publish("team.member_added", team.team, {"agent_id": agent_id}, [agent_id])
        return True

    async def remove_member(self, team: Team, agent_id: str) -> bool:
        """Remove a member from a locked team; False if it is none."""
        member = await self._manageable_member(agent_id)
        if not await self.store.remove_member(team.team, member.principal_id):
            return False
        await self.access.advance_epoch()
        await self.publish("team.member_removed", team.team, {"agent_id": agent_id}, [agent_id])
        return True

    async def publish(
        self, event_type: EventType, team: str, data: dict[str, object], also: Iterable[str] = ()
    ) -> None:
        """Publish an event to the members, the admins and these principals."""
        await self.outbox.publish(
            NewEvent(
                type=event_type,
                session_id=None,
                subject=team,
                actor=self.actor.participant,
                readable_by=(f"{TEAM}{team}", _ADMINS, *(f"{PRINCIPAL}{each}" for each in also)),
                data=data,
            )
        )

    def _visible(self, name: str, found: Team | None) -> Team:
        if found is None or not may_see(self.actor, name):
            error = unknown_team(name, self.actor)
            error.denial = found is not None
            raise error
        return found

    async def _manageable_member(self, agent_id: str) -> Principal:
        """Return a principal that the caller may add to the team or remove from it."""
        principal = await self.access.principal(agent_id)
        if principal is None:
            raise _unknown_agent(agent_id)
        is_own = principal.principal_id == self.actor.principal_id
        if is_own and self.actor.is_admin and self.actor.kind is PrincipalKind.HUMAN:
            return principal
        try:
            await check_may_edit(self.actor, principal, self.access)
        except PermissionDenied:
            if self.actor.is_admin or is_own:
                raise
            error = _unknown_agent(agent_id)
            error.denial = True
            raise error from None
        return principal


def may_see(actor: Actor, team: str) -> bool:
    """Tell whether a caller may learn that a team exists."""
    return actor.is_admin or team in actor.teams


def unknown_team(name: str, actor: Actor) -> TeamNotFound:
    """Return the error for a team that does not exist or that the caller may not see; it suggests the caller's own."""
    shown = name[:100]
    return TeamNotFound(
        f"There is no team '{shown}'.",
        resource_type="team",
        resource_id=shown,
        available_alternatives=close_names(shown, sorted(actor.teams)),
    )


def _unknown_agent(agent_id: str) -> AgentNotFound:
    return AgentNotFound(
        f"There is no agent '{agent_id}' that you may add or remove.", resource_type="agent", resource_id=agent_id
    )
