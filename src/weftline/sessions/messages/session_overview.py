"""Session views with messages: get_session, and the overview that the session resource shows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from msgspec import UNSET, UnsetType

from weftline.kernel.clock import Clock
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.records.sql import RecordStore
from weftline.sessions.messages.operations import MessageInfo, message_infos
from weftline.sessions.messages.transcript import Transcript, Transcripts
from weftline.sessions.model import SessionId, SessionNotFound
from weftline.sessions.operations import SessionInfo, session_info

_NEWEST = 50
# The specified cache lifetime; our own caches are invalidated by every change.
_KEPT_SECONDS = 300
_MINUTE = timedelta(minutes=1)


class GetSession(Request):
    """The session to read."""

    session_id: SessionId


class SessionFound(Response, kw_only=True, omit_defaults=False):
    """A session with its latest messages; ``message_count`` counts those visible to you.

    ``open_missing_context`` counts unresolved missing-context records, if there are any.
    """

    success: Literal[True] = True
    session: SessionInfo
    messages: list[MessageInfo]
    message_count: int
    open_missing_context: int | UnsetType = UNSET


class SessionStatistics(Response, kw_only=True, omit_defaults=False):
    """Figures of a session. Only ``message_count`` includes messages that you may not see, but no direct ones."""

    message_count: int
    visible_message_count: int
    unique_agents: int
    last_activity: datetime
    session_duration_minutes: int
    coordination_locks: int


class SessionResourceInfo(Response, kw_only=True, omit_defaults=False):
    """Metadata of the resource."""

    last_updated: datetime
    requesting_agent: str
    supports_subscriptions: Literal[True] = True
    cache_ttl: int = _KEPT_SECONDS


class SessionOverview(Response, kw_only=True, omit_defaults=False):
    """The session resource: state, latest messages, figures."""

    session: SessionInfo
    messages: list[MessageInfo]
    statistics: SessionStatistics
    resource_info: SessionResourceInfo


@operation(
    "session.get",
    tool="get_session",
    http="GET /v1/sessions/{session_id}",
    permission=Permission.READ,
    rate=RateClass.SESSION,
    effect=Effect.READ,
    errors=(SessionNotFound,),
)
async def get_session(request: GetSession, transcripts: Transcripts, records: RecordStore) -> SessionFound:
    """Get a session: purpose, members, state, settings and latest messages."""
    transcript = await transcripts.to_read(request.session_id)
    gaps = await records.open_missing_readers(request.session_id)
    return SessionFound(
        session=await session_info(transcript.session, transcripts.sessions),
        messages=message_infos(await transcript.newest(_NEWEST)),
        message_count=transcript.size,
        open_missing_context=sum(map(transcripts.actor.matches, gaps)) or UNSET,
    )


@operation(
    "session.overview",
    tool="get_session_overview",
    http="GET /v1/sessions/{session_id}/overview",
    permission=Permission.READ,
    rate=RateClass.SESSION,
    effect=Effect.READ,
    errors=(SessionNotFound,),
)
async def get_session_overview(request: GetSession, transcripts: Transcripts, clock: Clock) -> SessionOverview:
    """Get an overview of a session: state, latest messages, figures."""
    transcript = await transcripts.to_read(request.session_id)
    described = await session_info(transcript.session, transcripts.sessions)
    now = clock.now()
    return SessionOverview(
        session=described,
        messages=message_infos(await transcript.newest(_NEWEST)),
        statistics=await _statistics(transcript, described, now),
        resource_info=SessionResourceInfo(last_updated=now, requesting_agent=transcripts.actor.principal_id),
    )


async def _statistics(transcript: Transcript, described: SessionInfo, now: datetime) -> SessionStatistics:
    session = transcript.session
    return SessionStatistics(
        message_count=await transcript.count_without_direct_of_others(),
        visible_message_count=transcript.size,
        unique_agents=await transcript.messages.count_senders(session.session_id, transcript.audiences),
        last_activity=described.updated_at,
        session_duration_minutes=((described.archived_at or now) - described.created_at) // _MINUTE,
        # Agents cannot hold locks in Weftline, so the specified figure is always 0.
        coordination_locks=0,
    )
