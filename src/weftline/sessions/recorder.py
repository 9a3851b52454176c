"""Stores records and publishes their events, in the transaction of the operation that they describe."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, structs

from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import Conflict, NotFound
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.fields import new_id
from weftline.kernel.identity import ANYONE, PRINCIPAL, Actor, principal_of
from weftline.kernel.outbox import Outbox
from weftline.records.item_refs import native_ids_of, native_key
from weftline.records.model import (
    ContextAssembly,
    ContextBudget,
    ContextCompaction,
    ContextEnvelope,
    ContextEvent,
    ContextItem,
    ContextSelection,
    ContextSummary,
    ContextSurface,
    ContextWindow,
    Coverage,
    MissingContext,
    Producer,
    Record,
)
from weftline.records.refs import Link
from weftline.records.schemas import StoredRecord
from weftline.records.sql import RecordStore
from weftline.records.vocabulary import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from weftline.records.refs import Ref
    from weftline.records.vocabulary import Lifecycle, MissingStatus, Scope
    from weftline.sessions.model import Session


_encode = msgspec.json.Encoder().encode


# Event types of the record types that have an Agent Context event class.
_ADDED: dict[str, EventType] = {
    "context_surface": "context.surface.created",
    "context_item": "context.item.added",
    "context_selection": "context.selection.completed",
    "context_budget": "context.budget.applied",
    "context_window": "context.budget.applied",
    "context_assembly": "context.assembly.created",
    "context_injection": "context.injection.applied",
    "context_compaction": "context.compaction.completed",
    "context_summary": "context.summary.created",
}
_CHANGED: dict[str, EventType] = {
    **_ADDED,
    "context_surface": "context.surface.updated",
    "context_item": "context.item.updated",
}
# Event types of operations that take time, published when they start.
_STARTED: dict[str, EventType] = {
    "context_selection": "context.selection.started",
    "context_compaction": "context.compaction.started",
}
_MISSING: dict[MissingStatus, EventType] = {
    "detected": "context.missing.detected",
    "requested": "context.missing.requested",
    "resolved": "context.missing.resolved",
}


class RecordExists(Conflict):
    """A record of this type and id exists, with other content."""

    code = "RECORD_EXISTS"
    hint = "Records are immutable: choose an id that is not in use."
    related = ("context_records",)


class RecordNotFound(NotFound):
    """The record does not exist, or you may not read it."""

    code = "RECORD_NOT_FOUND"
    hint = "List the records with `records.list`."
    related = ("context_records",)


def no_record(kind: str, record_id: str) -> RecordNotFound:
    shown = record_id[:100]
    return RecordNotFound(f"There is no {kind} '{shown}'.", resource_type="record", resource_id=shown)


class Recorder(msgspec.Struct, frozen=True):
    """Stores records of the caller's operation and publishes their events."""

    actor: Actor
    records: RecordStore
    outbox: Outbox
    clock: Clock

    async def add(
        self,
        record: Record,
        session: Session | None,
        *,
        readable_by: tuple[str, ...] | None = None,
        event_type: EventType | None = None,
    ) -> StoredRecord:
        """Store a record and publish its event. Idempotent for the same content; other content is a conflict.

        Readable by every participant of its session unless ``readable_by`` is given; without a session by the caller.
        ``event_type`` overrides the event type that follows from the record type.
        """
        known = await self.records.find(record.type, record.id)
        if known is not None:
            return self._checked(known, record, session)
        readers = readable_by or self._default_readers(session)
        seq = await self._announce(record, session, readers, event_type or event_type_of(record, changed=False))
        row = self._row_of(record, session, readers, seq)
        if not await self.records.add(row, index_keys(record)):
            raise _exists(record)
        return row

    async def add_all(
        self,
        records: Sequence[Record],
        session: Session | None,
        *,
        readable_by: tuple[str, ...] | None = None,
        author: str | None = None,
    ) -> list[StoredRecord]:
        """Store several records like ``add``, with one batch of events; ``author`` if it is not the caller."""
        known = await self._find(records)
        stored = {key: self._checked(known[key], record, session) for key, record in _by_key(records) if key in known}
        added: dict[tuple[str, str], Record] = {}
        for key, record in _by_key(records):
            if key not in known and added.setdefault(key, record) != record:
                raise _exists(record)
        if not added:
            return [stored[key] for key, _ in _by_key(records)]
        readers = readable_by or self._default_readers(session)
        last = await self._announce_all(list(added.values()), session, readers, author)
        # Publishing holds the tenant's event counter, so records cannot be added concurrently any more.
        for key in await self._find(list(added.values())):
            raise _exists(added[key])
        for seq, (key, record) in enumerate(added.items(), start=last - len(added) + 1):
            stored[key] = self._row_of(record, session, readers, seq, author)
        await self.records.add_all([(stored[key], index_keys(record)) for key, record in added.items()])
        return [stored[key] for key, _ in _by_key(records)]

    async def begin(
        self,
        record: ContextSelection | ContextCompaction,
        session: Session | None,
        *,
        readable_by: tuple[str, ...] | None = None,
    ) -> None:
        """Publish that an operation has started whose result will be recorded, to the readers of that record."""
        readers = readable_by or self._default_readers(session)
        await self._publish(_STARTED[record.type], record, session, readers, {record.id_field: record.id})

    async def change(self, row: StoredRecord, record: Record, session: Session | None) -> StoredRecord:
        """Replace a record that has a lifecycle, and publish the change."""
        changed = structs.replace(
            row,
            status=status_of(record),
            changed_at=to_micros(self.clock.now()),
            seq=await self._announce(record, session, row.readable_by, event_type_of(record, changed=True)),
            body=_encode(record),
        )
        await self.records.replace(changed, index_keys(record))
        return changed

    async def _find(self, records: Sequence[Record]) -> dict[tuple[str, str], StoredRecord]:
        found = await self.records.find_several([key for key, _ in _by_key(records)])
        return {(row.type, row.record_id): row for row in found}

    def _checked(self, known: StoredRecord, record: Record, session: Session | None) -> StoredRecord:
        """Return a stored record if it has the same content and the caller may read it."""
        if known.body == _encode(record) and self._may_read(known, session):
            return known
        raise _exists(record)

    def _row_of(
        self, record: Record, session: Session | None, readers: tuple[str, ...], seq: int, author: str | None = None
    ) -> StoredRecord:
        now = to_micros(self.clock.now())
        return StoredRecord(
            type=record.type,
            record_id=record.id,
            session_id=session.session_id if session else None,
            status=status_of(record),
            recorded_by=author or self.actor.participant,
            principal_id=self.actor.principal_id if author is None else principal_of(author),
            recorded_at=now,
            changed_at=now,
            seq=seq,
            readable_by=readers,
            body=_encode(record),
        )

    async def _announce_all(
        self, records: Sequence[Record], session: Session | None, readers: tuple[str, ...], author: str | None
    ) -> int:
        """Publish the events of new records and return the sequence number of the last one."""
        events = [
            structs.replace(
                self._event(event_type_of(each, changed=False), each, session, readers, _added_data(each)),
                actor=author or self.actor.participant,
            )
            for each in records
        ]
        await self.outbox.publish(*events)
        return await self.outbox.last_seq()

    async def _announce(
        self, record: Record, session: Session | None, readers: tuple[str, ...], event_type: EventType
    ) -> int:
        """Publish the event of a record and return its sequence number."""
        await self._publish(event_type, record, session, readers, _added_data(record))
        return await self.outbox.last_seq()

    async def _publish(
        self,
        event_type: EventType,
        record: Record,
        session: Session | None,
        readers: tuple[str, ...],
        data: dict[str, Any],
    ) -> None:
        await self.outbox.publish(self._event(event_type, record, session, readers, data))

    def _event(
        self,
        event_type: EventType,
        record: Record,
        session: Session | None,
        readers: tuple[str, ...],
        data: dict[str, Any],
    ) -> NewEvent:
        return NewEvent(
            type=event_type,
            session_id=session.session_id if session else None,
            subject=record.id,
            actor=self.actor.participant,
            readable_by=readers,
            data=data,
        )

    def _default_readers(self, session: Session | None) -> tuple[str, ...]:
        return ANYONE if session else (f"{PRINCIPAL}{self.actor.principal_id}",)

    def _may_read(self, row: StoredRecord, session: Session | None) -> bool:
        return row.session_id == (session.session_id if session else None) and self.actor.matches(row.readable_by)


def _exists(record: Record) -> RecordExists:
    return RecordExists(f"There is a {record.type} '{record.id[:100]}' already.", resource_id=record.id[:100])


def event_type_of(record: Record, *, changed: bool) -> EventType:
    """Return the event type for adding or changing a record."""
    if isinstance(record, ContextEvent):
        return record.event_type
    if isinstance(record, MissingContext):
        return _MISSING[record.status]
    return _CHANGED.get(record.type, "record.changed") if changed else _ADDED.get(record.type, "record.added")


def status_of(record: Record) -> str | None:
    if isinstance(record, ContextEnvelope):
        return record.lifecycle
    return record.status if isinstance(record, MissingContext) else None


def index_keys(record: Record) -> set[str]:
    """Return the keys under which the store finds a record: the items it refers to, and its native ids."""
    return {*referenced_item_ids(record), *map(native_key, native_ids_of(record))}


def referenced_item_ids(record: Record) -> Iterable[str]:
    """Return the ids of the items that a record refers to."""
    return {id_of_ref(ref) for ref in _item_refs(record)}


def _item_refs(record: Record) -> Iterator[Ref]:
    match record:
        case ContextEnvelope():
            yield from record.item_refs
        case ContextSurface():
            yield from record.available_item_refs
        case ContextItem():
            yield record.item_id
        case ContextSelection():
            yield from (*record.candidate_item_refs, *record.selected_item_refs)
            yield from (omission.item_ref for omission in record.omitted_item_refs)
        case ContextBudget():
            yield from (truncation.item_ref for truncation in record.truncation_records)
            yield from (ref for segment in record.window_segments for ref in segment.item_refs)
        case ContextWindow():
            yield from (ref for segment in record.segments for ref in segment.item_refs)
        case ContextAssembly():
            yield from record.source_item_refs
            yield from (ref for block in record.ordered_blocks for ref in block.item_refs)
        case ContextCompaction() | ContextSummary():
            yield from record.source_item_refs
        case _:
            return


def id_of_ref(ref: Ref) -> str:
    """Return the id that a reference names, or its URI if it has no id."""
    if not isinstance(ref, Link):
        return ref
    return ref.id if ref.id is not UNSET else str(ref.uri)


def _added_data(record: Record) -> dict[str, Any]:
    return {"record_type": record.type, **_event_data(record)}


def _by_key(records: Iterable[Record]) -> list[tuple[tuple[str, str], Record]]:
    return [((record.type, record.id), record) for record in records]


def _event_data(record: Record) -> dict[str, Any]:
    """Return the event data of a record: never its content."""
    if isinstance(record, MissingContext):
        return {"severity": record.severity, "status": record.status}
    if isinstance(record, ContextCompaction):
        return _compaction_data(record)
    return {"lifecycle": record.lifecycle, "scope": record.scope} if isinstance(record, ContextEnvelope) else {}


def _compaction_data(record: ContextCompaction) -> dict[str, Any]:
    coverage = record.coverage or Coverage()
    figures = {"tokens_before": coverage.estimated_tokens_before, "tokens_after": coverage.estimated_tokens_after}
    return {
        "method": record.method,
        "items": len(record.source_item_refs),
        **{name: value for name, value in figures.items() if value is not UNSET},
    }


# Envelopes that the engine records in the transaction of what they are about, where a session asks for them.


def session_envelope(
    scope: Scope,
    session: Session,
    actor: Actor,
    at: datetime,
    items: Iterable[str],
    *,
    lifecycle: Lifecycle = "available",
    tool_call_id: str | None = None,
    **refs: Any,  # noqa: ANN401 - of several types
) -> ContextEnvelope:
    """Return an envelope of these items, with the ids that the caller gave its turn, task and tool call."""
    ids = actor.correlation
    named = {
        "session": session.session_id,
        "turn": ids.turn_id,
        "task": ids.task_id,
        "tool_call": tool_call_id or ids.tool_call_id,
    }
    return ContextEnvelope(
        schema_version=SCHEMA_VERSION,
        context_id=new_id("envelope"),
        scope=scope,
        lifecycle=lifecycle,
        created_at=at,
        producer=weftline_producer(),
        actor_refs=(Link(kind=str(actor.kind), id=actor.participant),),
        runtime_refs=tuple(Link(kind=kind, id=identity) for kind, identity in named.items() if identity is not None),
        surface_refs=(f"session:{session.session_id}",),
        item_refs=tuple(dict.fromkeys(items)),
        telemetry_refs=() if ids.trace_id is None else (Link(kind="trace", id=ids.trace_id),),
        **refs,
    )


@cache
def weftline_producer() -> Producer:
    return Producer(id="weftline", version=version("weftline"))
