"""Operations that change the members of a session."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec

from weftline.access.grants import check_may_edit, needs_clearance
from weftline.access.model import AgentId, AgentNotFound
from weftline.access.sql import AccessStore
from weftline.access.teams.model import TeamNotFound
from weftline.kernel.errors import InvalidInput, PermissionDenied
from weftline.kernel.events import NewEvent, Outbox
from weftline.kernel.identity import PRINCIPAL, Actor, Permission
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Success, operation
from weftline.sessions.members import (
    MAX_MEMBERS,
    Member,
    Members,
    TooManyMembers,
    shown_member,
    shown_members,
    with_members,
)
from weftline.sessions.model import Session, SessionId, SessionNotFound, find_session
from weftline.sessions.store import SessionStore

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
