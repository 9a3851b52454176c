"""Listing records: the event log, told in records to whoever may see them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from weft.capabilities.access.store import AccessStore
from weft.capabilities.events.model import EventQuery
from weft.capabilities.messages.search.by_sender_and_time import Moment, moment_meant
from weft.capabilities.record_log.lookup import FoundRecord, RecordFinder, RecordLookup
from weft.capabilities.record_log.model import TOOL, RecordId
from weft.capabilities.records.record_ids import (
    EventOrigin,
    MessageItemId,
    RecordRef,
    event_subject_of,
    parse_item_id,
    subject_item_id,
)
from weft.capabilities.records.vocabulary import RecordType
from weft.capabilities.sessions.model import SessionId, SessionNotFound
from weft.kernel.clock import to_micros
from weft.kernel.correlation import NativeId
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.identity import Permission, participant_name
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.kernel.events import StoredEvent

ParticipantOrAgent = Annotated[str, msgspec.Meta(min_length=1, max_length=300, pattern=r"^[A-Za-z0-9_:-]+\Z")]
Cursor = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,15}(\.[0-9]{1,6})?\Z")]
# So many events are read at a time, and so many times: a page may be short, but is never long in coming.
_EVENTS_AT_ONCE = 200
_LOOK_THROUGH = 20
# Where most events are passed over unread, so many are at a time.
_WINDOW = 100_000
# So many records are looked up at a time, and a page has no more bytes of them, unless the first one has.
_RECORDS_AT_ONCE = 100
_MOST_BYTES = 2 * 2**20
_MOST_OF_ITEM = 500
_BEHIND_ALL = 2**31
# An event follows what it tells of within its transaction, which no clock stretches by this much.
_APART_MICROS = 3_600_000_000


class ListRecords(Request):
    """Which records: all that match everything that is said here."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Records of this session; of all you may see if left out.")
    ] = None
    agent: Annotated[
        ParticipantOrAgent | None,
        msgspec.Meta(
            description="What this participant did, by the name events show, such as subagent:review; or by an agent's "
            "id, which stands for the name it goes by. Orchestrators share one name.",
        ),
    ] = None
    turn_id: Annotated[NativeId | None, msgspec.Meta(description="What was done in this turn.")] = None
    task_id: Annotated[NativeId | None, msgspec.Meta(description="What was done for this task.")] = None
    tool_call_id: Annotated[NativeId | None, msgspec.Meta(description="What was done by this tool call.")] = None
    item_id: Annotated[RecordId | None, msgspec.Meta(description="This item, and the records that name it.")] = None
    types: Annotated[
        tuple[RecordType, ...],
        msgspec.Meta(
            max_length=13,
            description="Only these types of records. Name context_event to see the events themselves as well.",
        ),
    ] = ()
    since: Annotated[Moment | None, msgspec.Meta(description="From this time on, in ISO 8601.")] = None
    until: Annotated[Moment | None, msgspec.Meta(description="Before this time; a date alone is that whole day.")] = (
        None
    )
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="At most this many.")] = 50
    after: Annotated[
        Cursor | None, msgspec.Meta(description="next_after of the page before, or the number of an event.")
    ] = None


class ListedRecord(Response):
    """A record, and the event that tells of it. ``digest`` is that of what an item says."""

    seq: int
    at: datetime
    type: str
    id: str
    record: dict[str, Any]
    digest: str | None = None


class Records(Response, kw_only=True, omit_defaults=False):
    """Records in the order of the log. There may be more as long as there is a next_after, even behind an empty page.

    What has a life is told of at every step of it, as it stands now.
    """

    records: list[ListedRecord]
    count: int
    has_more: bool
    next_after: str | None


class RecordCursor(NamedTuple):
    """A place in the list: an event, and which of the records it stands for."""

    seq: int
    number: int = _BEHIND_ALL

    def __str__(self) -> str:
        return str(self.seq) if self.number == _BEHIND_ALL else f"{self.seq}.{self.number}"

    @classmethod
    def parse(cls, text: str | None) -> RecordCursor:
        seq, dot, number = (text or "0").partition(".")
        return cls(int(seq), int(number) if dot else _BEHIND_ALL)


class _Made(msgspec.Struct):
    """When an item was made."""

    created_at: datetime | None = None


class _Listed(NamedTuple):
    """A record that an event names, and its place."""

    place: RecordCursor
    recorded: StoredEvent
    named: RecordRef


@operation(
    "records.list",
    tool=TOOL,
    action="list",
    http="GET /v1/records",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(SessionNotFound,),
    heavy=True,
)
async def list_records(request: ListRecords, finder: RecordFinder, access: AccessStore) -> Records:
    """See what was done as portable records, in the order of the log: by session, agent, turn, task, item or time.

    Versions of keys and messages are context items, sessions are surfaces, and what agents recorded is shown as they
    said it. You see what you may read by the rules of now.
    """
    _check_session(request, finder)
    wanted = await _wanted(request, access)
    page = _Page(request, await finder.look(request.session_id), RecordCursor.parse(request.after))
    if wanted is not None and request.item_id is None:
        await page.fill_from_log(wanted)
    elif wanted is not None:
        await page.fill(await _of_item(parse_item_id(request.item_id or ""), wanted, page))
    return page.answer()


def _check_session(request: ListRecords, finder: RecordFinder) -> None:
    if request.session_id is None and finder.actor.is_subagent:
        raise PermissionDenied(
            "A sub-agent sees the records of the session it works in, not all there are.",
            hint="Pass the session_id you were given.",
        )


async def _wanted(request: ListRecords, access: AccessStore) -> EventQuery | None:
    """Return which events to look at; None if there can be none."""
    actor = request.agent if request.agent is None else await _participant(request.agent, access)
    if request.agent is not None and actor is None:
        return None
    since = None if request.since is None else moment_meant("since", request.since, of_day=time.min)
    until = None if request.until is None else moment_meant("until", request.until, of_day=time.max)
    if since is not None and until is not None and since > until:
        raise InvalidInput("since: later than until", field="since")
    return EventQuery(
        session_id=request.session_id,
        actor=actor,
        turn_id=request.turn_id,
        task_id=request.task_id,
        tool_call_id=request.tool_call_id,
        since=None if since is None else to_micros(since),
        until=None if until is None else to_micros(until),
        items=not request.types or bool({"context_item", "context_event"} & set(request.types)),
    )


async def _participant(agent: str, access: AccessStore) -> str | None:
    """Return the name that events show of an agent; None if there is no such agent."""
    if ":" in agent or agent in {"orchestrator", "system"}:
        return agent
    principal = await access.principal(agent)
    if principal is None:
        return None
    return participant_name(
        principal.kind, principal.principal_id, principal.agent_type, parent_is_agent=principal.parent_is_agent
    )


class _Page:
    """A page of the list while it is filled."""

    def __init__(self, request: ListRecords, look: RecordLookup, after: RecordCursor) -> None:
        self.look = look
        self.after = after
        self._types = frozenset(request.types)
        self._limit = request.limit
        self._entries: list[tuple[RecordCursor, ListedRecord]] = []
        self._size = 0
        self._reached: RecordCursor | None = None

    @property
    def is_full(self) -> bool:
        # One more than asked for, to know whether there is more.
        return len(self._entries) > self._limit or self._size > _MOST_BYTES

    async def fill_from_log(self, wanted: EventQuery) -> None:
        """Go through the events that match, as far as one call should."""
        events, end = self.look.finder.events, await self.look.finder.events.last_seq()
        # The event that the page before ended in may stand for more than what was shown of it.
        position = self.after.seq if self.after.number == _BEHIND_ALL else self.after.seq - 1
        for _ in range(_LOOK_THROUGH):
            upto = end if wanted.items else min(end, position + _WINDOW)
            some = await events.find(replace(wanted, upto=upto), position, _EVENTS_AT_ONCE)
            await self.fill(await self.listed(some))
            position = some[-1].event.seq if len(some) == _EVENTS_AT_ONCE else upto
            if self.is_full or position >= end:
                return
        self._reached = RecordCursor(position)

    async def listed(self, events: Sequence[StoredEvent]) -> list[_Listed]:
        """Return the records of the types asked for that events stand for, without looking them up."""
        told = [recorded for recorded in events if self.look.may_be_told(recorded)]
        named = await self.look.named_in(told, events="context_event" in self._types)
        return [
            _Listed(RecordCursor(recorded.event.seq, number), recorded, each)
            for recorded, of_event in zip(told, named, strict=True)
            for number, each in enumerate(of_event)
            if not self._types or each.type in self._types
        ]

    async def fill(self, listed: Sequence[_Listed]) -> None:
        """Show what is behind the page before, until the page is full."""
        left = iter([each for each in listed if each.place > self.after])
        while not self.is_full and (some := list(islice(left, _RECORDS_AT_ONCE))):
            for each, found in zip(some, await self.look.records([each.named for each in some]), strict=True):
                if found is not None and not self.is_full:
                    self._add(each, found)

    def _add(self, listed: _Listed, found: FoundRecord) -> None:
        event = listed.recorded.event
        entry = ListedRecord(
            seq=event.seq,
            at=event.at,
            type=listed.named.type,
            id=listed.named.id,
            record=msgspec.json.decode(found.body),
            digest=found.digest,
        )
        self._entries.append((listed.place, entry))
        self._size += len(found.body)

    def answer(self) -> Records:
        shown = self._entries[: self._limit]
        reached = shown[-1][0] if self.is_full else self._reached
        return Records(
            records=[entry for _, entry in shown],
            count=len(shown),
            has_more=reached is not None,
            next_after=None if reached is None else str(reached),
        )


async def _of_item(item: RecordRef, wanted: EventQuery, page: _Page) -> list[_Listed]:
    """Return an item and the records that name it, each with the event that tells of it, in the order of the log."""
    finder = page.look.finder
    naming = {(kept.type, kept.record_id): kept.seq for kept in await finder.records.of_item(item.id)}
    events = [*await _about(item, page.look), *await finder.events.numbered(list(naming.values()))]
    matching = {recorded.event.seq: recorded for recorded in events if _matches(recorded, wanted)}
    listed = await page.listed([matching[seq] for seq in sorted(matching)])
    return [each for each in listed if _is_about(each.named, item) or (each.named.type, each.named.id) in naming]


async def _about(item: RecordRef, look: RecordLookup) -> list[StoredEvent]:
    """Return the events that an item itself came, changed and went by."""
    found = await look.record(item)
    if found is None or found.kept is not None:
        return []
    made = _made_at(found.body)
    subject, session_id = event_subject_of(item)
    lasts = isinstance(item.origin, MessageItemId)
    of_itself = EventQuery(
        subject=subject,
        session_id=session_id,
        since=None if made is None else made - _APART_MICROS,
        until=None if made is None or lasts else made + _APART_MICROS,
    )
    events = look.finder.events
    return [
        *await events.find(of_itself, 0, _MOST_OF_ITEM),
        *await events.find(EventQuery(subject=item.id), 0, _MOST_OF_ITEM),
    ]


def _made_at(body: bytes) -> int | None:
    made = msgspec.json.decode(body, type=_Made).created_at
    return None if made is None else to_micros(made)


def _is_about(named: RecordRef, item: RecordRef) -> bool:
    return named.id == item.id or (isinstance(named.origin, EventOrigin) and subject_item_id(named.origin) == item.id)


def _matches(recorded: StoredEvent, wanted: EventQuery) -> bool:
    """Tell whether an event is one of those that are asked for."""
    event, during = recorded.event, recorded.during
    asked = (
        (wanted.session_id, event.session_id),
        (wanted.actor, event.actor),
        (wanted.turn_id, during.turn_id),
        (wanted.task_id, during.task_id),
        (wanted.tool_call_id, during.tool_call_id),
    )
    at = to_micros(event.at)
    in_time = (wanted.since is None or at >= wanted.since) and (wanted.until is None or at < wanted.until)
    return in_time and all(one is None or one == other for one, other in asked)
