"""Teams as one caller sees them, and the operations on them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.access.grants import check_clearance, check_may_edit, forbid_self_change
from weftline.access.model import AgentId, AgentNotFound
from weftline.access.sql import AccessStore
from weftline.access.teams import (
    MANAGER_CLEARANCE,
    MAX_MEMBERS,
    MAX_TEAMS_OF_MEMBER,
    Team,
    TeamContent,
    TeamContents,
    TeamExists,
    TeamFull,
    TeamName,
    TeamNotEmpty,
    TeamNotFound,
    TeamStore,
)
from weftline.kernel.clock import Clock, from_micros, to_micros
from weftline.kernel.errors import PermissionDenied, SelfModification, close_names
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.fields import ShortText
from weftline.kernel.identity import PERMISSION, PRINCIPAL, TEAM, Actor, Permission, PrincipalKind
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, Success, operation
from weftline.kernel.outbox import Outbox
from weftline.safety.trust.gate import GATE_ERRORS, ContentGate, IncomingContent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.access.model import Principal
    from weftline.access.teams import Member


# Teams as one caller sees them: members see theirs, admins all; to others they do not exist.

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


# Operations on teams: create, list, show, update, delete, add and remove members.

_operation = partial(operation, tool="teams", rate=RateClass.ADMIN, session=SessionUse.NONE)
_read = partial(_operation, permission=Permission.READ, effect=Effect.READ)
_admin_write = partial(
    _operation,
    permission=Permission.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
)


def _check_manager(actor: Actor) -> None:
    """Refuse callers that may change the members of no team."""
    if not actor.is_admin:
        check_clearance(actor, MANAGER_CLEARANCE, "Changing the members of a team")


# Also for members that are no admins.
_member_write = partial(
    _operation,
    permission=Permission.WRITE,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    requires=_check_manager,
    forbids=forbid_self_change,
    audited=True,
    errors=(TeamNotFound, AgentNotFound, PermissionDenied, SelfModification, TeamFull),
)

Description = Annotated[ShortText, msgspec.Meta(description="What the team does, in one line.")]


class CreateTeam(Request):
    """A new team."""

    team: TeamName
    description: Description = ""


class ListTeams(Request):
    """A page of teams."""

    after: Annotated[TeamName | None, msgspec.Meta(description="Return teams after this one; for paging.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000, description="At most this many.")] = 100


class ShowTeam(Request):
    """The team to show."""

    team: TeamName


class UpdateTeam(Request):
    """A team and its new description."""

    team: TeamName
    description: Description


class DeleteTeam(Request):
    """The team to delete."""

    team: TeamName
    force: Annotated[bool, msgspec.Meta(description="Also if it still has memory or guidelines.")] = False


class ChangeMember(Request):
    """A team, and the agent or human to add or remove."""

    team: TeamName
    agent_id: AgentId


class TeamInfo(Response, omit_defaults=False):
    """A team. ``members`` is the number of its members."""

    team: str
    description: str
    members: int
    created_by: str
    created_at: datetime
    updated_at: datetime


class TeamList(Response):
    """Teams, by name."""

    teams: list[TeamInfo]
    has_more: bool


class MemberInfo(Response):
    """A member of a team."""

    agent_id: str
    kind: str
    added_by: str
    added_at: datetime


class TeamShown(Response, omit_defaults=False):
    """A team with its members. ``memory_version`` and ``layer_version`` are 0 where it has no memory or guidelines."""

    team: str
    description: str
    members: list[MemberInfo]
    memory_version: int
    memory_bytes: int
    layer_version: int
    created_by: str
    created_at: datetime
    updated_at: datetime


class TeamDeleted(Success, kw_only=True):
    """What was deleted with the team: members, bytes of memory, and whether it had guidelines."""

    on_record = ("members", "memory_bytes", "had_layer")

    team: str
    members: int
    memory_bytes: int
    had_layer: bool


class MemberChanged(Success, kw_only=True):
    """The membership is as asked; ``changed`` is false if it already was."""

    on_record = ("changed",)

    team: str
    agent_id: str
    changed: bool


@_admin_write("team.create", action="create", http="POST /v1/teams", status=201, errors=(TeamExists, *GATE_ERRORS))
async def create_team(request: CreateTeam, teams: Teams) -> TeamInfo:
    """Create a team without members. For admins."""
    description = await teams.described(request.team, request.description)
    team = Team(request.team, description, teams.actor.participant, teams.now, teams.now)
    if not await teams.store.add(team):
        raise TeamExists(f"The name '{request.team}' is taken.")
    await teams.publish("team.created", team.team, {})
    return _info(team)


@_read("team.list", action="list", http="GET /v1/teams")
async def list_teams(request: ListTeams, teams: Teams) -> TeamList:
    """List the teams you are a member of; as an admin, all."""
    after, actor = request.after or "", teams.actor
    if actor.is_admin:
        found = await teams.store.all(after, request.limit + 1)
    else:
        found = [team for team in await teams.store.of_member(actor.principal_id) if team.team > after]
    return TeamList(teams=[_info(team) for team in found[: request.limit]], has_more=len(found) > request.limit)


@_read("team.show", action="show", http="GET /v1/teams/{team}", errors=(TeamNotFound,))
async def show_team(request: ShowTeam, teams: Teams, contents: TeamContents) -> TeamShown:
    """Show a team you are a member of: its members, and the versions of its memory and guidelines."""
    team = await teams.find(request.team)
    content = await contents.of(team.team)
    return TeamShown(
        team=team.team,
        description=team.description,
        members=[_member(member) for member in await teams.store.members(team.team)],
        memory_version=content.memory_version,
        memory_bytes=content.memory_bytes,
        layer_version=content.layer_version,
        created_by=team.created_by,
        created_at=from_micros(team.created_at),
        updated_at=from_micros(team.updated_at),
    )


@_admin_write("team.update", action="update", http="PATCH /v1/teams/{team}", errors=(TeamNotFound, *GATE_ERRORS))
async def update_team(request: UpdateTeam, teams: Teams) -> TeamInfo:
    """Change the description of a team. For admins."""
    team = await teams.lock(request.team)
    description = await teams.described(team.team, request.description)
    await teams.store.describe(team.team, description, teams.now)
    await teams.publish("team.changed", team.team, {})
    return _info(msgspec.structs.replace(team, description=description, updated_at=teams.now))


@_admin_write(
    "team.delete",
    action="delete",
    http="DELETE /v1/teams/{team}",
    destructive=True,
    errors=(TeamNotFound, TeamNotEmpty, SelfModification),
)
async def delete_team(request: DeleteTeam, teams: Teams, contents: TeamContents) -> TeamDeleted:
    """Delete a team with its memory and guidelines, for good. For admins; its name cannot be used again."""
    team = await teams.lock(request.team)
    content = await contents.of(team.team)
    if not (content.is_empty or request.force):
        raise _not_empty(team, content)
    if content.layer_version and teams.actor.kind is PrincipalKind.AGENT:
        raise SelfModification(
            "An agent cannot delete a team that has guidelines: they bind it and others.",
            hint="Ask a human admin to delete the team.",
            layer=f"{TEAM}{team.team}",
        )
    await contents.erase(team.team)
    await teams.publish("team.deleted", team.team, {"members": team.members})
    await teams.store.delete(team.team, teams.now)
    await teams.access.advance_epoch()
    return TeamDeleted(
        team=team.team,
        members=team.members,
        memory_bytes=content.memory_bytes,
        had_layer=content.layer_version > 0,
    )


@_member_write("team.add_member", action="add_member", http="PUT /v1/teams/{team}/members/{agent_id}")
async def add_member(request: ChangeMember, teams: Teams) -> MemberChanged:
    """Add an agent or a human to a team; it sees the team's memory with its next call.

    For admins and for members with clearance 3 or higher, who can add principals that they may edit.
    """
    team = await teams.lock(request.team)
    changed = await teams.add_member(team, request.agent_id)
    return MemberChanged(team=team.team, agent_id=request.agent_id, changed=changed)


@_member_write(
    "team.remove_member", action="remove_member", http="DELETE /v1/teams/{team}/members/{agent_id}", destructive=False
)
async def remove_member(request: ChangeMember, teams: Teams) -> MemberChanged:
    """Remove a member from a team; it loses access with its next call.

    For admins and for members with clearance 3 or higher, who can remove principals that they may edit.
    """
    team = await teams.lock(request.team)
    changed = await teams.remove_member(team, request.agent_id)
    return MemberChanged(team=team.team, agent_id=request.agent_id, changed=changed)


def _not_empty(team: Team, content: TeamContent) -> TeamNotEmpty:
    return TeamNotEmpty(
        f"The team '{team.team}' has {content.memory_bytes} bytes of memory and "
        f"{'guidelines' if content.layer_version else 'no guidelines'}.",
        memory_version=content.memory_version,
        memory_bytes=content.memory_bytes,
        layer_version=content.layer_version,
    )


def _info(team: Team) -> TeamInfo:
    return TeamInfo(
        team=team.team,
        description=team.description,
        members=team.members,
        created_by=team.created_by,
        created_at=from_micros(team.created_at),
        updated_at=from_micros(team.updated_at),
    )


def _member(member: Member) -> MemberInfo:
    return MemberInfo(
        agent_id=member.principal_id,
        kind=member.kind,
        added_by=member.added_by,
        added_at=from_micros(member.added_at),
    )
