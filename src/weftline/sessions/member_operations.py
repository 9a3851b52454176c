"""Operations that change the members of a session."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.access.grants import check_may_edit, is_descendant, needs_clearance
from weftline.access.model import AgentId, AgentNotFound, actor_for, member_patterns
from weftline.access.sql import AccessStore
from weftline.access.teams import TeamNotFound
from weftline.kernel.errors import MAX_COMPARED, Conflict, InvalidInput, PermissionDenied, close_names
from weftline.kernel.events import NewEvent
from weftline.kernel.identity import ORCHESTRATOR, PRINCIPAL, TEAM, TREE, Actor, Permission, PrincipalKind
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Success, operation
from weftline.kernel.outbox import Outbox
from weftline.sessions.model import (
    Session,
    SessionId,
    SessionNotFound,
    check_not_terminated,
    find_session,
    session_not_found,
)
from weftline.sessions.sql import SessionStore
from weftline.sessions.team_operations import Teams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# Members of a session: how callers name them, and who may change them.

MAX_MEMBERS = 100
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
# Names of participants, where * stands for everything after a colon.
_PARTICIPANT = rf"\*|{ORCHESTRATOR}(:(\*|{_NAME}))?|human:(\*|{_NAME})|subagent:(\*|{_NAME}(:(\*|{_NAME}))?)"
_participant = re.compile(rf"({_PARTICIPANT})\Z")
_named = re.compile(rf"(?:(principal|tree|user|team):)?({_NAME})\Z")

Member = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=250,
        pattern=r"^[A-Za-z0-9_:*-]+\Z",
        description="An id of an agent or human, team:NAME, tree:ID (an agent and those below it), user:ID (a human "
        "and the agents that serve it), or participants by name, such as subagent:review:*, orchestrator or *.",
    ),
]
MemberPattern = Annotated[
    str, msgspec.Meta(pattern=rf"^((principal|tree|user|team):{_NAME}|{_PARTICIPANT})\Z", max_length=250)
]


class TooManyMembers(Conflict):
    """A session has at most 100 entries in its list of members."""

    code = "TOO_MANY_MEMBERS"
    hint = "Add a team (team:NAME), a whole tree of agents (tree:ID) or a pattern instead of single agents."
    related = ("session_members", "teams")


class Members(msgspec.Struct, frozen=True):
    """Resolves and changes the members of sessions, for the caller of one operation."""

    actor: Actor
    access: AccessStore
    teams: Teams
    sessions: SessionStore

    async def resolve(self, entries: Iterable[str]) -> tuple[str, ...]:
        """Return the patterns of entries that a caller gave, each once; refuse names that do not exist."""
        return tuple(dict.fromkeys([await self._pattern(entry) for entry in entries]))

    async def lock_managed(self, session_id: str) -> Session:
        """Return a session whose members the caller may change, locked for writing."""
        check_not_terminated(session_id, self.actor)
        found = await self.sessions.find_locked(session_id)
        session = None if found is None else found[0]
        manages = session is not None and await self._manages(session)
        if session is None or not (manages or session.admits(self.actor)):
            raise await session_not_found(session_id, self.actor, self.sessions, session)
        if not manages:
            raise PermissionDenied(
                "Only the creator of a session, those above it and admins can change its members or delete it.",
                hint=f"Ask '{session.created_by}', who created it.",
                created_by=session.created_by,
            )
        return session

    async def still_admitted(self, session: Session, patterns: Iterable[str]) -> dict[str, str]:
        """Return which of these principals are still members, each with the entry that it is a member by."""
        found = {}
        for pattern in patterns:
            principal_id = pattern.removeprefix(PRINCIPAL)
            principal = await self.access.principal(principal_id) if principal_id != pattern else None
            if principal is None:
                continue
            memberships = await self.access.memberships(principal)
            agent = actor_for(self.actor.tenant, principal, memberships, permissions=principal.permissions, epoch=0)
            by = next((each for each in session.members if each in member_patterns(agent)), None)
            if by is not None:
                found[principal_id] = shown_member(by)
        return found

    async def _manages(self, session: Session) -> bool:
        """Tell whether the caller is an admin, the creator of the session, or above the creator."""
        if self.actor.is_admin or self.actor.principal_id == session.created_by:
            return True
        creator = await self.access.principal(session.created_by)
        return creator is not None and await is_descendant(self.actor.principal_id, creator, self.access)

    async def _pattern(self, entry: str) -> str:
        if _participant.match(entry):
            return entry
        named = _named.match(entry)
        if named is None:
            raise InvalidInput(
                f"members: '{entry[:100]}' is none of: an id, team:NAME, tree:ID, user:ID, or participants by name, "
                "such as subagent:review:*, orchestrator or *; a * stands for everything after a colon",
                field="members",
            )
        kind, name = named.groups()
        if kind == "team":
            return f"{TEAM}{(await self.teams.find(name)).team}"
        principal = await self.access.principal(name)
        if principal is None or (kind == "user" and principal.kind is not PrincipalKind.HUMAN):
            raise await self._unknown(name)
        return f"{kind or 'principal'}:{name}"

    async def _unknown(self, name: str) -> AgentNotFound:
        """Return the error, suggesting similar ids of principals that the caller knows."""
        near = close_names(name, [each.principal_id for each in await self.access.principals("", MAX_COMPARED)])
        return AgentNotFound(
            f"There is no agent or human '{name}'.",
            resource_type="agent",
            resource_id=name,
            available_alternatives=[each for each in near if await self._knows(each)],
        )

    async def _knows(self, principal_id: str) -> bool:
        """Tell whether the caller may learn of a principal: itself, above or below it, or a human it serves."""
        actor = self.actor
        if actor.is_admin or principal_id in {actor.principal_id, *actor.ancestors, *actor.users}:
            return True
        principal = await self.access.principal(principal_id)
        return principal is not None and await is_descendant(actor.principal_id, principal, self.access)


def default_members(creator: str) -> tuple[str, ...]:
    """Return the members of a session that names none: the agents below its creator."""
    return (f"{TREE}{creator}",)


def shown_members(session: Session) -> list[str]:
    return [shown_member(pattern) for pattern in session.members]


def shown_member(pattern: str) -> str:
    """Return a pattern as callers write it: a principal by its id, unless the id means all orchestrators."""
    name = pattern.removeprefix(PRINCIPAL)
    return pattern if name == ORCHESTRATOR else name


def with_members(session: Session, members: Sequence[str]) -> Session:
    """Return a session with other members; the creator needs no entry."""
    creator = f"{PRINCIPAL}{session.created_by}"
    listed = tuple(each for each in members if each != creator)
    if len(listed) > MAX_MEMBERS:
        raise TooManyMembers(members=len(listed), limit=MAX_MEMBERS)
    return msgspec.structs.replace(session, members=listed)


REINSTATE_CLEARANCE = 3


class ChangeMembers(Request):
    """A session, and members to add or remove."""

    session_id: SessionId
    members: Annotated[
        tuple[Member, ...],
        msgspec.Meta(min_length=1, max_length=MAX_MEMBERS, description="Entries of the list of members."),
    ]


class MembersAdded(Success, kw_only=True):
    """All members of the session besides its creator, and those that are new."""

    on_record = ("added",)

    session_id: str
    members: list[str]
    added: list[str]


class MembersRemoved(Success, kw_only=True):
    """All members that are left besides the creator, and those that were removed.

    ``still_members`` are agents that were to be removed but are members by another entry, each with that entry.
    """

    on_record = ("removed",)

    session_id: str
    members: list[str]
    removed: list[str]
    still_members: dict[str, str]


class ReinstateAgent(Request):
    """A session, and the agent that is refused in it."""

    session_id: SessionId
    agent_id: AgentId


class AgentReinstated(Success, kw_only=True):
    """The agent that is admitted again; False: it was not refused by itself."""

    session_id: str
    agent_id: str
    reinstated: bool


_operation = partial(
    operation,
    tool="session_members",
    permission=Permission.WRITE,
    rate=RateClass.SESSION,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
)


@_operation(
    "session.add_members",
    action="add",
    http="POST /v1/sessions/{session_id}/members",
    errors=(SessionNotFound, PermissionDenied, AgentNotFound, TeamNotFound, TooManyMembers),
)
async def add_members(request: ChangeMembers, members: Members, outbox: Outbox) -> MembersAdded:
    """Add agents, humans, teams or patterns to a session; they see all of it, also what came before.

    For the creator of the session, those above it and admins.
    """
    before = await members.lock_managed(request.session_id)
    patterns = await members.resolve(request.members)
    session = with_members(before, tuple(dict.fromkeys((*before.members, *patterns))))
    added = [shown_member(each) for each in session.members if each not in before.members]
    await _change(session, members, outbox, {"added": added, "removed": []})
    return MembersAdded(session_id=session.session_id, members=shown_members(session), added=added)


@_operation(
    "session.remove_members",
    action="remove",
    http="POST /v1/sessions/{session_id}/members/remove",
    errors=(SessionNotFound, PermissionDenied),
)
async def remove_members(request: ChangeMembers, members: Members, outbox: Outbox) -> MembersRemoved:
    """Remove members from a session; they lose access to all of it at once.

    For the creator of the session, those above it and admins. Names an entry as the session shows it.
    """
    before = await members.lock_managed(request.session_id)
    asked = {each: _stored(each, before) for each in request.members}
    if f"{PRINCIPAL}{before.created_by}" in asked.values():
        raise InvalidInput("members: the creator of a session cannot be removed", field="members")
    session = with_members(before, [each for each in before.members if each not in asked.values()])
    removed = [shown_member(each) for each in before.members if each not in session.members]
    await _change(session, members, outbox, {"added": [], "removed": removed})
    return MembersRemoved(
        session_id=session.session_id,
        members=shown_members(session),
        removed=removed,
        still_members=await members.still_admitted(session, asked.values()),
    )


@_operation(
    "session.reinstate",
    action="reinstate",
    http="POST /v1/sessions/{session_id}/reinstate",
    audience=Audience.HUMANS,
    requires=needs_clearance(REINSTATE_CLEARANCE, "Reinstating an agent"),
    errors=(SessionNotFound, AgentNotFound, PermissionDenied),
)
async def reinstate_agent(
    request: ReinstateAgent, actor: Actor, access: AccessStore, sessions: SessionStore, outbox: Outbox
) -> AgentReinstated:
    """Admit an agent again to a session that a rule ended for it. For human members with clearance 3 or higher."""
    session = await find_session(request.session_id, actor, sessions)
    agent = await access.principal(request.agent_id)
    if agent is None:
        raise AgentNotFound(f"There is no agent '{request.agent_id}'.", agent_id=request.agent_id)
    await check_may_edit(actor, agent, access)
    reinstated = await access.reinstate_session(agent.principal_id, session.session_id)
    if reinstated:
        await access.advance_epoch()
        await outbox.publish(
            NewEvent(
                type="session.reinstated",
                session_id=session.session_id,
                subject=agent.principal_id,
                actor=actor.participant,
                data={"agent_id": agent.principal_id},
            )
        )
    return AgentReinstated(session_id=session.session_id, agent_id=agent.principal_id, reinstated=reinstated)


def _stored(entry: str, session: Session) -> str:
    """Return the pattern of an entry to remove; it need not exist any more."""
    if entry in session.members or ":" in entry or "*" in entry:
        return entry
    return f"{PRINCIPAL}{entry}"


async def _change(session: Session, members: Members, outbox: Outbox, changed: dict[str, list[str]]) -> None:
    if not any(changed.values()):
        return
    await members.sessions.set_members(session)
    await outbox.publish(
        NewEvent(
            type="session.members_changed",
            session_id=session.session_id,
            subject=session.session_id,
            actor=members.actor.participant,
            data=dict(changed),
        )
    )
