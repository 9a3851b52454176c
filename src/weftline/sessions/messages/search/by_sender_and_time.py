"""Message search by sender and by time range."""

from __future__ import annotations

from datetime import datetime, time
from typing import Annotated, Literal

import msgspec

from weftline.kernel.clock import to_micros
from weftline.kernel.errors import InvalidInput
from weftline.kernel.fields import Count, is_name
from weftline.kernel.identity import Permission
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.kernel.timestamps import TimestampText, parse_timestamp
from weftline.sessions.messages.model import TranscriptRange
from weftline.sessions.messages.operations import MessageInfo, message_infos, skips_far
from weftline.sessions.messages.transcript import MessagePage, Transcripts
from weftline.sessions.model import SessionId, SessionNotFound


class SearchBySender(Request):
    """Sender and page of a message search."""

    session_id: SessionId
    sender: Annotated[str, msgspec.Meta(min_length=1, max_length=100, description="agent_id of the sender.")]
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum messages.")] = 20
    offset: Annotated[Count, msgspec.Meta(description="Number of newest messages to skip.")] = 0


class MessagesBySender(Response, kw_only=True, omit_defaults=False):
    """A sender's messages, newest first."""

    success: Literal[True] = True
    messages: list[MessageInfo]
    sender: str
    count: int
    has_more: bool


class SearchByTimerange(Request):
    """Time range of a message search, both ends inclusive."""

    session_id: SessionId
    start_time: TimestampText
    end_time: TimestampText
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum messages.")] = 50
    offset: Annotated[Count, msgspec.Meta(description="Number of oldest messages to skip.")] = 0


class TimeRange(Response, kw_only=True, omit_defaults=False):
    """The time range searched, in UTC."""

    start: datetime
    end: datetime


class MessagesByTime(Response, kw_only=True, omit_defaults=False):
    """Messages of a time range, oldest first."""

    success: Literal[True] = True
    messages: list[MessageInfo]
    timerange: TimeRange
    count: int
    has_more: bool


@operation(
    "message.search_by_sender",
    tool="search_by_sender",
    http="GET /v1/sessions/{session_id}/messages/search/by-sender",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.READ,
    heavy=skips_far,
    errors=(SessionNotFound,),
)
async def search_by_sender(request: SearchBySender, transcripts: Transcripts) -> MessagesBySender:
    """List the messages of one sender in a session that you may read, newest first."""
    encode_json_field("sender", request.sender)
    transcript = await transcripts.to_read(request.session_id)
    part = TranscriptRange(sender=request.sender, offset=request.offset, limit=request.limit, newest_first=True)
    page = await transcript.page(part) if is_name(request.sender) else MessagePage([], has_more=False)
    shown = message_infos(page.messages)
    return MessagesBySender(messages=shown, sender=request.sender, count=len(shown), has_more=page.has_more)


@operation(
    "message.search_by_timerange",
    tool="search_by_timerange",
    http="GET /v1/sessions/{session_id}/messages/search/by-timerange",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.READ,
    heavy=skips_far,
    errors=(SessionNotFound,),
)
async def search_by_timerange(request: SearchByTimerange, transcripts: Transcripts) -> MessagesByTime:
    """List the messages of a time range in a session that you may read, oldest first."""
    start = parse_timestamp("start_time", request.start_time, of_day=time.min)
    end = parse_timestamp("end_time", request.end_time, of_day=time.max)
    if start > end:
        raise InvalidInput("start_time: later than end_time", field="start_time")
    transcript = await transcripts.to_read(request.session_id)
    first, last = await transcripts.messages.between(request.session_id, to_micros(start), to_micros(end))
    page = await transcript.page(
        TranscriptRange(after=first - 1, until=last, offset=request.offset, limit=request.limit)
    )
    shown = message_infos(page.messages)
    return MessagesByTime(
        messages=shown, timerange=TimeRange(start=start, end=end), count=len(shown), has_more=page.has_more
    )
