"""Members of a session: how callers name them, and who may change them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.access.grants import is_descendant
from weftline.access.model import AgentNotFound, actor_for
from weftline.access.patterns import member_patterns
from weftline.access.sql import AccessStore
from weftline.kernel.errors import MAX_COMPARED, Conflict, InvalidInput, PermissionDenied, close_names
from weftline.kernel.identity import ORCHESTRATOR, PRINCIPAL, TEAM, TREE, Actor, PrincipalKind
from weftline.sessions.model import Session, check_not_terminated, session_not_found
from weftline.sessions.store import SessionStore
from weftline.sessions.teams.service import Teams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
