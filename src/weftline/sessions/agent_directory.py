"""The agents and humans that a caller may address, and the operation that lists them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from weftline.access.model import Memberships, actor_for
from weftline.access.sql import AccessStore
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import MAX_COMPARED, NotFound, PermissionDenied, close_names
from weftline.kernel.fields import Name
from weftline.kernel.identity import PRINCIPAL, Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.sessions.model import SessionId, SessionNotFound, find_session
from weftline.sessions.sql import SessionStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.access.model import Principal
    from weftline.sessions.model import Session

_PAGE = 500
_MAX_SUGGESTED = 5


class RecipientNotFound(NotFound):
    """No active member of the session has this id."""

    code = "RECIPIENT_NOT_FOUND"
    hint = "Only members of the session can be addressed: `agent.list` with session_id lists them."
    related = ("list_agents",)


class PrincipalPage(NamedTuple):
    """Principals by id, and whether more follow."""

    principals: Sequence[Principal]
    has_more: bool


class ListAgents(Request):
    """A page of principals: of a session, or those near you in the tree and in your teams."""

    session_id: Annotated[SessionId | None, msgspec.Meta(description="Only the members of this session.")] = None
    after: Annotated[Name | None, msgspec.Meta(description="Return agents after this agent_id; for paging.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="At most this many.")] = 100


class ListedAgent(Response, kw_only=True):
    """A principal, without credentials. Admins see every field, others the first four."""

    agent_id: str
    agent_type: str
    kind: str
    participant: str
    parent_id: str | UnsetType | None = UNSET
    clearance: int | UnsetType = UNSET
    permissions: list[str] | UnsetType = UNSET
    created_at: datetime | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET
    min_score: float | UnsetType | None = UNSET


class AgentList(Response):
    """Principals, by id."""

    agents: list[ListedAgent]
    has_more: bool


class AgentDirectory(msgspec.Struct, frozen=True):
    """Finds the principals that one caller may address. Disabled ones are not among them."""

    actor: Actor
    access: AccessStore
    sessions: SessionStore

    async def member(self, session: Session, agent_id: str) -> Actor:
        """Return an active member of a session; RecipientNotFound with similar names otherwise."""
        principal = await self.access.principal(agent_id)
        if principal is not None and principal.disabled_at is None:
            for member in await self._members(session, [principal]):
                return member
        error = RecipientNotFound(
            f"There is no agent '{agent_id}' in this session that you may address.",
            resource_type="agent",
            resource_id=agent_id,
            available_alternatives=await self._similar(session, agent_id),
        )
        error.denial = principal is not None
        raise error

    async def of_session(self, session: Session, after: str, limit: int) -> PrincipalPage:
        """Return the active members of a session, by id."""
        found: list[Principal] = []
        while len(found) <= limit:
            page = await self.access.active_principals(after, _PAGE)
            members = {actor.principal_id for actor in await self._members(session, page)}
            found += [each for each in page if each.principal_id in members and not self._is_own(each)]
            if len(page) < _PAGE:
                break
            after = page[-1].principal_id
        return PrincipalPage(found[:limit], len(found) > limit)

    async def near(self, after: str, limit: int) -> PrincipalPage:
        """Return the active principals above and below the caller, with the same parent, or in one of its teams."""
        found = await self.access.near(self.actor.principal_id, after, limit + 1)
        return PrincipalPage(found[:limit], len(found) > limit)

    async def of_tenant(self, after: str, limit: int) -> PrincipalPage:
        """Return all principals of the tenant, disabled ones too."""
        found = await self.access.principals(after, limit + 1)
        return PrincipalPage(found[:limit], len(found) > limit)

    async def _members(self, session: Session, principals: Sequence[Principal]) -> list[Actor]:
        """Return those of these principals that are members of a session."""
        plain = [self._as_member(each, Memberships()) for each in principals]
        members = {actor.principal_id: actor for actor in plain if session.admits(actor)}
        others = [each for each in principals if each.principal_id not in members]
        memberships = await self.access.memberships_of(others) if others else {}
        more = (self._as_member(each, memberships[each.principal_id]) for each in others)
        members |= {actor.principal_id: actor for actor in more if session.admits(actor)}
        return list(members.values())

    def _as_member(self, principal: Principal, memberships: Memberships) -> Actor:
        # Without the permission admin: admins may look into every session, but are not members of it.
        permissions = principal.permissions - {Permission.ADMIN}
        return actor_for(self.actor.tenant, principal, memberships, permissions=permissions, epoch=self.actor.epoch)

    async def _similar(self, session: Session, agent_id: str) -> list[str]:
        """Return members of a session with a similar id, or with this type."""
        page = await self.access.active_principals("", MAX_COMPARED)
        named = [each.removeprefix(PRINCIPAL) for each in session.audience if each.startswith(PRINCIPAL)]
        similar = close_names(agent_id, list(dict.fromkeys([*named, *(each.principal_id for each in page)])))
        of_type = [each.principal_id for each in page if each.agent_type == agent_id][:_MAX_SUGGESTED]
        # Only of these few, because the session is locked: who else is a member takes long to find out.
        found = [await self.access.principal(each) for each in dict.fromkeys([*similar, *of_type])]
        active = [each for each in found if each and each.disabled_at is None and not self._is_own(each)]
        members = {actor.principal_id for actor in await self._members(session, active)}
        return [each.principal_id for each in active if each.principal_id in members][:_MAX_SUGGESTED]

    def _is_own(self, principal: Principal) -> bool:
        return principal.principal_id == self.actor.principal_id


def _check_may_list(actor: Actor) -> None:
    if not actor.permissions & {Permission.READ, Permission.ADMIN}:
        raise PermissionDenied("Listing agents needs the permission 'read'.")


@operation(
    "agent.list",
    tool="list_agents",
    http="GET /v1/agents",
    permission=None,
    rate=RateClass.SESSION,
    effect=Effect.READ,
    requires=_check_may_list,
    heavy=lambda request: request.session_id is not None,
    errors=(SessionNotFound, PermissionDenied),
)
async def list_agents(request: ListAgents, directory: AgentDirectory) -> AgentList:
    """List the agents and humans you may address: the members of a session, or your tree and your teams.

    Your tree: those above and below you, and those with the same parent. Admins see the whole tenant.
    """
    after, is_admin = request.after or "", directory.actor.is_admin and not directory.actor.is_subagent
    if request.session_id is not None:
        session = await find_session(request.session_id, directory.actor, directory.sessions)
        page = await directory.of_session(session, after, request.limit)
    elif is_admin:
        page = await directory.of_tenant(after, request.limit)
    else:
        page = await directory.near(after, request.limit)
    show = _whole if is_admin else _public
    return AgentList(agents=[show(principal) for principal in page.principals], has_more=page.has_more)


def _public(principal: Principal) -> ListedAgent:
    return ListedAgent(
        agent_id=principal.principal_id,
        agent_type=principal.agent_type,
        kind=principal.kind,
        participant=principal.participant,
    )


def _whole(principal: Principal) -> ListedAgent:
    return msgspec.structs.replace(
        _public(principal),
        parent_id=principal.parent_id,
        clearance=principal.clearance,
        permissions=sorted(principal.permissions),
        created_at=from_micros(principal.created_at),
        disabled=principal.disabled_at is not None,
        min_score=principal.min_score,
    )
