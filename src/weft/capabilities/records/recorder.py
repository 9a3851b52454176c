"""Writing records: as part of the transaction of whatever they tell of, with the event that tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.records.model import (
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
    MissingContext,
    Record,
)
from weft.capabilities.records.refs import Link
from weft.capabilities.records.store import RecordStore, StoredRecord
from weft.kernel.clock import Clock, to_micros
from weft.kernel.errors import Conflict, NotFound
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.identity import ANYONE, PRINCIPAL, Actor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weft.capabilities.records.refs import Ref
    from weft.capabilities.sessions.model import Session

_encode = msgspec.json.Encoder().encode


class _Told(NamedTuple):
    """What an event says of a record that is new, and of one that is told again."""

    first: str
    again: str


# Records that no class of Agent Context is about have events of our own.
_UNCLASSED = _Told("record.added", "record.changed")
_EVENTS = {
    "context_surface": _Told("context.surface.created", "context.surface.updated"),
    "context_item": _Told("context.item.added", "context.item.updated"),
    "context_selection": _Told("context.selection.completed", "context.selection.completed"),
    "context_budget": _Told("context.budget.applied", "context.budget.applied"),
    "context_window": _Told("context.budget.applied", "context.budget.applied"),
    "context_assembly": _Told("context.assembly.created", "context.assembly.created"),
    "context_injection": _Told("context.injection.applied", "context.injection.applied"),
    "context_compaction": _Told("context.compaction.completed", "context.compaction.completed"),
    "context_summary": _Told("context.summary.created", "context.summary.created"),
}


# What has a beginning that is told before anything is known of how it ends.
_BEGINNINGS = {
    "context_selection": "context.selection.started",
    "context_compaction": "context.compaction.started",
}


class RecordExists(Conflict):
    """There is a record of this type and id, and it says something else."""

    code = "RECORD_EXISTS"
    hint = "Records do not change once they are made: give yours an id of its own."
    related = ("context_records",)


class RecordNotFound(NotFound):
    """There is no such record for you."""

    code = "RECORD_NOT_FOUND"
    hint = "See the records there are with the action list of context_records."
    related = ("context_records",)


class Recorder(msgspec.Struct, frozen=True):
    """Records what a caller's operation did."""

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
        told_as: str | None = None,
    ) -> StoredRecord:
        """Keep a record and tell of it. The same once more is nothing new; another one under its id is refused.

        In a session it is for everyone who takes part unless ``readable_by`` says less, without one for the caller.
        ``told_as`` is the type of the event, where the record alone does not say what happened.
        """
        body = _encode(record)
        known = await self.records.find(record.type, record.id)
        if known is not None:
            if known.body == body and self._may_read(known, session):
                return known
            raise RecordExists(f"There is a {record.type} '{record.id[:100]}' already.", resource_id=record.id[:100])
        told = readable_by or self._usual_readers(session)
        now = to_micros(self.clock.now())
        kept = StoredRecord(
            type=record.type,
            record_id=record.id,
            session_id=session.session_id if session else None,
            status=status_of(record),
            recorded_by=self.actor.participant,
            principal_id=self.actor.principal_id,
            recorded_at=now,
            changed_at=now,
            seq=await self._tell(record, session, told, told_as or event_type_of(record, again=False)),
            readable_by=told,
            body=body,
        )
        if not await self.records.add(kept, items_of(record)):
            raise RecordExists(f"There is a {record.type} '{record.id[:100]}' already.", resource_id=record.id[:100])
        return kept

    async def begin(
        self,
        record: ContextSelection | ContextCompaction,
        session: Session | None,
        *,
        readable_by: tuple[str, ...] | None = None,
    ) -> None:
        """Tell that something has begun which a record will say the outcome of, to those who may read that."""
        told = readable_by or self._usual_readers(session)
        await self._publish(_BEGINNINGS[record.type], record, session, told, {record.id_field: record.id})

    async def change(self, kept: StoredRecord, record: Record, session: Session | None) -> StoredRecord:
        """Let a record that has a life say where it is in it now, and tell of that."""
        changed = structs.replace(
            kept,
            status=status_of(record),
            changed_at=to_micros(self.clock.now()),
            seq=await self._tell(record, session, kept.readable_by, event_type_of(record, again=True)),
            body=_encode(record),
        )
        await self.records.replace(changed, items_of(record))
        return changed

    async def _tell(self, record: Record, session: Session | None, told: tuple[str, ...], event_type: str) -> int:
        await self._publish(event_type, record, session, told, {"record_type": record.type, **_said(record)})
        return await self.outbox.last_seq()

    async def _publish(
        self, event_type: str, record: Record, session: Session | None, told: tuple[str, ...], data: dict[str, Any]
    ) -> None:
        event = NewEvent(
            type=event_type,
            session_id=session.session_id if session else None,
            subject=record.id,
            actor=self.actor.participant,
            participants=session.audience if session else ANYONE,
            readable_by=told,
            data=data,
        )
        await self.outbox.publish(event)

    def _usual_readers(self, session: Session | None) -> tuple[str, ...]:
        return ANYONE if session else (f"{PRINCIPAL}{self.actor.principal_id}",)

    def _may_read(self, kept: StoredRecord, session: Session | None) -> bool:
        return kept.session_id == (session.session_id if session else None) and self.actor.matches(kept.readable_by)


def event_type_of(record: Record, *, again: bool) -> str:
    """Return what the log calls it when a record is made, or changed."""
    if isinstance(record, ContextEvent):
        return record.event_type
    if isinstance(record, MissingContext):
        return f"context.missing.{record.status}"
    told = _EVENTS.get(record.type, _UNCLASSED)
    return told.again if again else told.first


def status_of(record: Record) -> str | None:
    if isinstance(record, ContextEnvelope):
        return record.lifecycle
    return record.status if isinstance(record, MissingContext) else None


def items_of(record: Record) -> Iterable[str]:
    """Return the items that a record names."""
    return {_id(ref) for ref in _item_refs(record)}


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


def _id(ref: Ref) -> str:
    if not isinstance(ref, Link):
        return ref
    return ref.id if ref.id is not UNSET else str(ref.uri)


def _said(record: Record) -> dict[str, Any]:
    """Return what followers are told of a record beside its id: never anything it quotes."""
    if isinstance(record, MissingContext):
        return {"severity": record.severity, "status": record.status}
    return {"lifecycle": record.lifecycle, "scope": record.scope} if isinstance(record, ContextEnvelope) else {}
