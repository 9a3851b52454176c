"""Operation records.list: the event log as records, filtered by what the caller may read."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, time
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from weftline.access.sql import AccessStore
from weftline.exchange.record_log.add import RecordId, read_operation
from weftline.exchange.record_log.lookup import FoundRecord, RecordFinder, RecordLookup
from weftline.history.item_ids import MessageItemId
from weftline.history.model import SYSTEM
from weftline.kernel.clock import TimestampText, parse_timestamp, to_micros
from weftline.kernel.correlation import NativeId
from weftline.kernel.errors import InvalidInput, PermissionDenied
from weftline.kernel.identity import ORCHESTRATOR
from weftline.kernel.operation import Request, Response
from weftline.records.item_refs import native_key
from weftline.records.open_records import shown_form
from weftline.records.record_ids import EventOrigin, RecordRef, event_subject_of, parse_item_id, subject_item_id
from weftline.records.vocabulary import RecordType
from weftline.sessions.events.model import EventQuery
from weftline.sessions.model import SessionId, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.events import StoredEvent

ParticipantOrAgent = Annotated[str, msgspec.Meta(min_length=1, max_length=300, pattern=r"^[A-Za-z0-9_:-]+\Z")]
Cursor = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,15}(\.[0-9]{1,6})?\Z")]
# Bounds the work of one call: a page may be short, but comes quickly.
_EVENT_BATCH = 200
_MAX_EVENT_BATCHES = 20
# Sequence numbers scanned per batch where the index skips most events.
_SCAN_WINDOW = 100_000
_RECORD_BATCH = 100
# A page ends at this size, unless its first record alone is larger.
_MAX_PAGE_BYTES = 2 * 2**20
_MAX_EVENTS_OF_ITEM = 500
_AFTER_ALL = 2**31
# Fields of a call that hold an id of another system.
_NATIVE_FIELDS = ("trace_id", "native_id", "turn_id", "task_id", "tool_call_id")
# An event is published in the transaction of the change it reports; clocks may differ by less than this.
_MAX_EVENT_DELAY_MICROS = 3_600_000_000


class ListRecords(Request):
    """Filters, combined with AND."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Records of this session. Default: all you may see.")
    ] = None
    agent: Annotated[
        ParticipantOrAgent | None,
        msgspec.Meta(
            description="Records of this participant, by the name that events show, such as subagent:review, or by an "
            "agent's id.",
        ),
    ] = None
    turn_id: Annotated[NativeId | None, msgspec.Meta(description="Records of this turn.")] = None
    task_id: Annotated[NativeId | None, msgspec.Meta(description="Records of this task.")] = None
    tool_call_id: Annotated[NativeId | None, msgspec.Meta(description="Records of this tool call.")] = None
    item_id: Annotated[RecordId | None, msgspec.Meta(description="This item and the records that reference it.")] = None
    native_id: Annotated[
        NativeId | None,
        msgspec.Meta(
            description="Records known under this id elsewhere: an MCP session, a trace, an A2A task, a model answer, "
            "a CloudEvent, or what their external mappings name."
        ),
    ] = None
    types: Annotated[
        tuple[RecordType, ...],
        msgspec.Meta(
            max_length=13,
            description="Record types. Include context_event to list the events themselves too.",
        ),
    ] = ()
    since: Annotated[TimestampText | None, msgspec.Meta(description="From this time on (ISO 8601).")] = None
    until: Annotated[
        TimestampText | None, msgspec.Meta(description="Before this time; a date alone is that whole day.")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum records.")] = 50
    after: Annotated[
        Cursor | None, msgspec.Meta(description="next_after of the previous page, or the seq of an event.")
    ] = None


class ListedRecord(Response):
    """A record and the event it belongs to. ``digest`` is the digest of an item's content."""

    seq: int
    at: datetime
    actor: str
    type: str
    id: str
    record: dict[str, Any]
    digest: str | None = None


class Records(Response, omit_defaults=False):
    """Records in log order. There may be more while next_after is set, even after an empty page.

    A record with a lifecycle is listed once for every change of it, each time in its current state.
    """

    records: list[ListedRecord]
    count: int
    has_more: bool
    next_after: str | None


class RecordCursor(NamedTuple):
    """A position in the list: an event, and the index among the records of that event."""

    seq: int
    number: int = _AFTER_ALL

    def __str__(self) -> str:
        return str(self.seq) if self.number == _AFTER_ALL else f"{self.seq}.{self.number}"

    @classmethod
    def parse(cls, text: str | None) -> RecordCursor:
        seq, dot, number = (text or "0").partition(".")
        return cls(int(seq), int(number) if dot else _AFTER_ALL)


class _CreatedAt(msgspec.Struct):
    """Decodes only the creation time of an item."""

    created_at: datetime | None = None


class _ListEntry(NamedTuple):
    """A record of an event, and its position in the list."""

    cursor: RecordCursor
    recorded: StoredEvent
    ref: RecordRef


@read_operation("records.list", action="list", http="GET /v1/records", errors=(SessionNotFound,), heavy=True)
async def list_records(request: ListRecords, finder: RecordFinder, access: AccessStore) -> Records:
    """List what happened as portable records, in log order: by session, agent, turn, task, item or time.

    Key versions and messages are context items, sessions are surfaces; records added by agents are listed unchanged.
    Only records that you may read now are listed.
    """
    _check_session(request, finder)
    query = await _query(request, access)
    page = _PageBuilder(request, await finder.look(request.session_id), RecordCursor.parse(request.after))
    if query is not None and request.native_id is not None:
        await page.fill_from_native_id(request.native_id, query)
    elif query is not None and request.item_id is None:
        await page.fill_from_log(query)
    elif query is not None:
        await page.fill(await _of_item(parse_item_id(request.item_id or ""), query, page))
    return page.answer()


def _check_session(request: ListRecords, finder: RecordFinder) -> None:
    if request.native_id is not None and request.item_id is not None:
        raise InvalidInput("native_id: give either item_id or native_id", field="native_id")
    if request.session_id is None and finder.actor.is_subagent:
        raise PermissionDenied(
            "A sub-agent may list the records of its session only.",
            hint="Pass the session_id of your session.",
        )


async def _query(request: ListRecords, access: AccessStore) -> EventQuery | None:
    """Return the matching event query; None if nothing can match."""
    actor = request.agent if request.agent is None else await _participant(request.agent, access)
    if request.agent is not None and actor is None:
        return None
    since = None if request.since is None else parse_timestamp("since", request.since, of_day=time.min)
    until = None if request.until is None else parse_timestamp("until", request.until, of_day=time.max)
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
    """Return the participant name of an agent in events; None if there is no such agent."""
    if ":" in agent or agent == SYSTEM.participant:
        return agent
    principal = await access.principal(agent)
    if principal is None:
        # Imported events may carry the name that all orchestrators share.
        return agent if agent == ORCHESTRATOR else None
    return principal.participant


class _PageBuilder:
    """Collects the records of one page."""

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
        # One more than requested, to know whether there are more.
        return len(self._entries) > self._limit or self._size > _MAX_PAGE_BYTES

    async def fill_from_log(self, query: EventQuery) -> None:
        """Scan the matching events, within the work limit of one call."""
        events, end = self.look.finder.events, await self.look.finder.events.last_seq()
        # The last event of the previous page may have further records.
        position = self.after.seq if self.after.number == _AFTER_ALL else self.after.seq - 1
        for _ in range(_MAX_EVENT_BATCHES):
            upto = end if query.items else min(end, position + _SCAN_WINDOW)
            some = await events.find(replace(query, upto=upto), position, _EVENT_BATCH)
            await self.fill(await self.listed(some))
            position = some[-1].event.seq if len(some) == _EVENT_BATCH else upto
            if self.is_full or position >= end:
                return
        self._reached = RecordCursor(position)

    async def fill_from_native_id(self, native_id: str, query: EventQuery) -> None:
        """Add the records of calls with this id, and those whose external mappings contain it."""
        finder = self.look.finder
        position = self.after.seq - (self.after.number != _AFTER_ALL)
        calls: list[StoredEvent] = []
        ends = []
        for field in _NATIVE_FIELDS:
            by_id: dict[str, Any] = {field: native_id}
            if getattr(query, field) in {None, native_id}:
                some = await finder.events.find(replace(query, **by_id), position, _EVENT_BATCH)
                calls += some
                ends += [some[-1].event.seq] if len(some) == _EVENT_BATCH else []
        # Beyond the shortest full batch there may be events that were not read.
        end = min(ends, default=None)
        mapped = {
            (row.type, row.record_id): row.seq
            for row in await finder.records.of_item(native_key(native_id), finder.actor)
        }
        stored = await finder.events.numbered([seq for seq in mapped.values() if seq > position])
        of_calls = {event.event.seq: event for event in calls if end is None or event.event.seq <= end}
        of_records = {
            event.event.seq: event
            for event in stored
            if _matches(event, query) and (end is None or event.event.seq <= end)
        }
        events = of_calls | of_records
        listed = await self.listed([events[seq] for seq in sorted(events)])
        keys = mapped.keys()
        await self.fill(
            [each for each in listed if each.recorded.event.seq in of_calls or (each.ref.type, each.ref.id) in keys]
        )
        if end is not None and not self.is_full:
            self._reached = RecordCursor(end)

    async def listed(self, events: Sequence[StoredEvent]) -> list[_ListEntry]:
        """Return the records of events, filtered by type, without loading them."""
        visible = [recorded for recorded in events if self.look.may_see_event(recorded)]
        refs = await self.look.records_of(visible, events="context_event" in self._types)
        return [
            _ListEntry(RecordCursor(recorded.event.seq, number), recorded, each)
            for recorded, of_event in zip(visible, refs, strict=True)
            for number, each in enumerate(of_event)
            if not self._types or each.type in self._types
        ]

    async def fill(self, entries: Sequence[_ListEntry]) -> None:
        """Load records after the cursor until the page is full."""
        left = iter([each for each in entries if each.cursor > self.after])
        while not self.is_full and (some := list(islice(left, _RECORD_BATCH))):
            for each, found in zip(some, await self.look.records([each.ref for each in some]), strict=True):
                if found is not None and not self.is_full:
                    self._add(each, found)

    def _add(self, entry: _ListEntry, found: FoundRecord) -> None:
        event = entry.recorded.event
        listed = ListedRecord(
            seq=event.seq,
            at=event.at,
            actor=event.actor,
            type=entry.ref.type,
            id=entry.ref.id,
            record=shown_form(msgspec.json.decode(found.body)),
            digest=found.digest,
        )
        self._entries.append((entry.cursor, listed))
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


async def _of_item(item: RecordRef, query: EventQuery, page: _PageBuilder) -> list[_ListEntry]:
    """Return an item and the records that reference it, with their events, in log order."""
    finder = page.look.finder
    referencing = {(row.type, row.record_id): row.seq for row in await finder.records.of_item(item.id, finder.actor)}
    events = [*await _about(item, page.look), *await finder.events.numbered(list(referencing.values()))]
    matching = {recorded.event.seq: recorded for recorded in events if _matches(recorded, query)}
    listed = await page.listed([matching[seq] for seq in sorted(matching)])
    return [each for each in listed if _is_about(each.ref, item) or (each.ref.type, each.ref.id) in referencing]


async def _about(item: RecordRef, look: RecordLookup) -> list[StoredEvent]:
    """Return the events about an item itself."""
    found = await look.record(item)
    if found is None or found.stored is not None:
        return []
    made = _created_at(found.body)
    subject, session_id = event_subject_of(item)
    lasts = isinstance(item.origin, MessageItemId)
    of_itself = EventQuery(
        subject=subject,
        session_id=session_id,
        since=None if made is None else made - _MAX_EVENT_DELAY_MICROS,
        until=None if made is None or lasts else made + _MAX_EVENT_DELAY_MICROS,
    )
    events = look.finder.events
    return [
        *await events.find(of_itself, 0, _MAX_EVENTS_OF_ITEM),
        *await events.find(EventQuery(subject=item.id), 0, _MAX_EVENTS_OF_ITEM),
    ]


def _created_at(body: bytes) -> int | None:
    made = msgspec.json.decode(body, type=_CreatedAt).created_at
    return None if made is None else to_micros(made)


def _is_about(named: RecordRef, item: RecordRef) -> bool:
    return named.id == item.id or (isinstance(named.origin, EventOrigin) and subject_item_id(named.origin) == item.id)


def _matches(recorded: StoredEvent, query: EventQuery) -> bool:
    event, correlation = recorded.event, recorded.correlation
    pairs = (
        (query.session_id, event.session_id),
        (query.actor, event.actor),
        (query.turn_id, correlation.turn_id),
        (query.task_id, correlation.task_id),
        (query.tool_call_id, correlation.tool_call_id),
    )
    at = to_micros(event.at)
    in_time = (query.since is None or at >= query.since) and (query.until is None or at < query.until)
    return in_time and all(one is None or one == other for one, other in pairs)
