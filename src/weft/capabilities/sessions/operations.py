"""What orchestrators and humans can do with sessions. Sub-agents work inside one and never see these."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from weft.capabilities.history.store import LineStore
from weft.capabilities.sessions.model import (
    ALL_SESSIONS,
    Session,
    SessionArchived,
    SessionConfig,
    SessionExists,
    SessionId,
    SessionNotFound,
    line_of,
    lock_active_session,
    lock_session,
)
from weft.capabilities.sessions.store import SessionCursor, SessionStore
from weft.kernel.clock import Clock, from_micros, optional_moment, to_micros
from weft.kernel.errors import InvalidInput
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.fields import Name, ShortText
from weft.kernel.identity import Actor, Permission
from weft.kernel.ids import new_session_id
from weft.kernel.json_input import Metadata, checked_metadata
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation


class CreateSession(Request):
    """A new unit of work."""

    purpose: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=2_000, pattern=r"^[^\x00]*\Z", description="What the session is for."),
    ]
    metadata: Metadata = None
    session_id: Annotated[
        Name | None,
        msgspec.Meta(description="An id of your own (letters, digits, _ and -); generated if left out."),
    ] = None
    config: Annotated[SessionConfig | None, msgspec.Meta(description="Limits and options; defaults otherwise.")] = None


class SessionCreated(Response, kw_only=True, omit_defaults=False):
    """The session is there."""

    success: Literal[True] = True
    session_id: str
    created_by: str
    created_at: datetime


class SessionInfo(Response, kw_only=True, omit_defaults=False):
    """A session as its participants see it."""

    id: str
    purpose: str
    created_at: datetime
    updated_at: datetime
    created_by: str
    is_active: bool
    metadata: dict[str, Any]
    archived_at: datetime | None
    config: SessionConfig
    branches: list[str]


class ListSessions(Request):
    """Which sessions to list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="At most this many.")] = 50
    cursor: Annotated[ShortText | None, msgspec.Meta(description="next_cursor of the page before.")] = None
    include_archived: Annotated[bool, msgspec.Meta(description="Archived ones too.")] = False


class Sessions(Response, kw_only=True, omit_defaults=False):
    """Sessions, newest first."""

    success: Literal[True] = True
    sessions: list[SessionInfo]
    count: int
    has_more: bool
    next_cursor: str | None


class ArchiveSession(Request):
    """Which session to close for writing."""

    session_id: SessionId


class SessionArchivedAt(Response, kw_only=True, omit_defaults=False):
    """The session is read-only from now on."""

    success: Literal[True] = True
    session_id: str
    archived_at: datetime


class DeleteSession(Request):
    """Which session to remove for good."""

    session_id: SessionId


class SessionDeleted(Response, kw_only=True, omit_defaults=False):
    """The session is gone."""

    success: Literal[True] = True
    session_id: str


@operation(
    "session.create",
    tool="create_session",
    http="POST /v1/sessions",
    status=201,
    permission=Permission.WRITE,
    rate=RateClass.SESSION,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    session=SessionUse.CREATES,
    errors=(SessionExists,),
)
async def create_session(
    request: CreateSession, actor: Actor, sessions: SessionStore, lines: LineStore, outbox: Outbox, clock: Clock
) -> SessionCreated:
    """Create a session: an isolated place for agents to work together, with an empty board.

    It lasts until it is archived or deleted, over days, conversations and restarts.
    """
    if request.session_id == ALL_SESSIONS:
        raise InvalidInput(f"session_id: '{ALL_SESSIONS}' means all sessions there are", field="session_id")
    now = clock.now()
    session = Session(
        session_id=request.session_id or new_session_id(),
        purpose=request.purpose,
        metadata=checked_metadata(request.metadata),
        config=request.config or SessionConfig(),
        created_by=actor.principal_id,
        created_at=to_micros(now),
        updated_at=to_micros(now),
        archived_at=None,
    )
    if not await sessions.add(session):
        raise SessionExists(f"There is a session '{session.session_id}' already, or one is still being deleted.")
    await lines.create(line_of(session.session_id))
    await outbox.publish(_event("session.created", session, actor))
    return SessionCreated(session_id=session.session_id, created_by=actor.principal_id, created_at=now)


@operation(
    "session.list",
    tool="list_sessions",
    http="GET /v1/sessions",
    permission=Permission.READ,
    rate=RateClass.SESSION,
    effect=Effect.READ,
    audience=Audience.NOT_SUBAGENTS,
)
async def list_sessions(request: ListSessions, actor: Actor, sessions: SessionStore) -> Sessions:
    """List the sessions you take part in, newest first."""
    position = _parse_cursor(request.cursor)
    admitted: list[Session] = []
    while len(admitted) <= request.limit:
        page = await sessions.newest(position, request.limit + 1, archived=request.include_archived)
        admitted += [session for session in page if session.admits(actor)]
        if len(page) <= request.limit:
            break
        position = SessionCursor(page[-1].created_at, page[-1].session_id)
    shown = admitted[: request.limit]
    has_more = len(admitted) > request.limit
    return Sessions(
        sessions=[await describe(session, sessions) for session in shown],
        count=len(shown),
        has_more=has_more,
        next_cursor=f"{shown[-1].created_at}.{shown[-1].session_id}" if has_more else None,
    )


@operation(
    "session.archive",
    tool="archive_session",
    http="POST /v1/sessions/{session_id}/archive",
    permission=Permission.WRITE,
    rate=RateClass.SESSION,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(SessionNotFound, SessionArchived),
)
async def archive_session(
    request: ArchiveSession, actor: Actor, sessions: SessionStore, lines: LineStore, outbox: Outbox, clock: Clock
) -> SessionArchivedAt:
    """Close a session for writing and keep it for reading and audit."""
    # Behind the lock, so that no write which has seen the session active can still land after this.
    session, _ = await lock_active_session(request.session_id, actor, sessions)
    now = clock.now()
    await sessions.archive(session.session_id, to_micros(now))
    await lines.set_next_expiry(line_of(session.session_id), None)
    for branch in await lines.branches(line_of(session.session_id)) if session.branches else ():
        await lines.set_next_expiry(branch.head.line_id, None)
    await outbox.publish(_event("session.archived", session, actor))
    return SessionArchivedAt(session_id=session.session_id, archived_at=now)


@operation(
    "session.delete",
    tool="delete_session",
    http="DELETE /v1/sessions/{session_id}",
    permission=Permission.WRITE,
    rate=RateClass.SESSION,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(SessionNotFound,),
)
async def delete_session(
    request: DeleteSession, actor: Actor, sessions: SessionStore, lines: LineStore, outbox: Outbox
) -> SessionDeleted:
    """Remove a session for good, with all that agents keep in it. Only the audit log remembers it."""
    session, _ = await lock_session(request.session_id, actor, sessions)
    belonging = await sessions.lines(session.session_id)
    await sessions.erase(session.session_id)
    # Values last: whoever holds one of those waits for nothing else that a writer may have locked.
    for line_id in belonging:
        await lines.erase(line_id)
    await outbox.publish(_event("session.deleted", session, actor))
    return SessionDeleted(session_id=session.session_id)


async def describe(session: Session, sessions: SessionStore) -> SessionInfo:
    return SessionInfo(
        id=session.session_id,
        purpose=session.purpose,
        created_at=from_micros(session.created_at),
        updated_at=from_micros(await sessions.last_activity(session)),
        created_by=session.created_by,
        is_active=session.archived_at is None,
        metadata=session.metadata,
        archived_at=optional_moment(session.archived_at),
        config=session.config,
        branches=list(await sessions.branches(session)),
    )


def _event(event_type: str, session: Session, actor: Actor) -> NewEvent:
    return NewEvent(
        type=event_type,
        session_id=session.session_id,
        subject=session.session_id,
        actor=actor.participant,
        participants=session.audience,
    )


def _parse_cursor(cursor: str | None) -> SessionCursor | None:
    if cursor is None:
        return None
    created_at, _, session_id = cursor.partition(".")
    if not created_at.isascii() or not created_at.isdigit() or len(created_at) > 18:  # noqa: PLR2004 - fits 64 bits
        raise InvalidInput("cursor: not a next_cursor of list_sessions", field="cursor")
    return SessionCursor(int(created_at), session_id)
