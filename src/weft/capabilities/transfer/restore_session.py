"""Restores the session of a bundle: board commits, messages, events and records."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.board.store import EntryStore
from weft.capabilities.events.model import EventImport, EventStore
from weft.capabilities.history.model import Version
from weft.capabilities.history.snapshot_quota import SnapshotQuota
from weft.capabilities.history.store import LineStore
from weft.capabilities.messages.categories import pins_itself
from weft.capabilities.messages.model import ADMINS, Message
from weft.capabilities.messages.store import MessageStore
from weft.capabilities.pins.model import ItemPlace, PinLimitExceeded
from weft.capabilities.pins.service import Pins
from weft.capabilities.records.model import RECORD_TYPES, ContextEvent, ContextItem, decode_record
from weft.capabilities.records.recorder import RecordExists, index_keys, status_of
from weft.capabilities.records.store import RecordStore, Redaction, StoredRecord
from weft.capabilities.sessions.model import line_of
from weft.capabilities.sessions.store import SessionStore
from weft.capabilities.transfer import decode
from weft.capabilities.transfer.bundle_format import BundleRecord, BundleSnapshot
from weft.capabilities.transfer.restore_board import BoardRestore, RowBatch
from weft.capabilities.transfer.validate_bundle import EntryWithContent, decode_entry, entries_with_content, open_bundle
from weft.capabilities.trust.model import joined_label
from weft.kernel.clock import Clock, from_micros, to_micros
from weft.kernel.events import Event, NewEvent, Outbox, StoredEvent
from weft.kernel.identity import ANYONE, SUBAGENT, Actor, principal_of
from weft.kernel.ports import Cooperative

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence
    from typing import BinaryIO

    from weft.capabilities.records.model import Record
    from weft.capabilities.sessions.model import Session
    from weft.capabilities.transfer.validate_bundle import BundleReport, Restorable

IMPORTED: Final = "session.imported"
_RECORD_ADDED = "record.added"
_NO_EVENT = 0
_BATCH = 200
_ENTRIES_PER_YIELD = 50
_MAX_ID = 500
# Fields that hold a record id.
_ID_FIELDS = frozenset(kind.id_field for kind in RECORD_TYPES.values())
_REF_SUFFIXES = ("_ref", "_refs")
_CONTENT_FIELD = "content"
_SESSION_EVENTS = "session."
_encode = msgspec.json.Encoder().encode


class RestoreStores(msgspec.Struct, frozen=True):
    """The stores that hold the parts of a session, bound to the importing caller."""

    actor: Actor
    sessions: SessionStore
    lines: LineStore
    entries: EntryStore
    messages: MessageStore
    records: RecordStore
    events: EventStore
    event_import: EventImport
    outbox: Outbox
    clock: Clock
    cooperative: Cooperative
    pins: Pins
    snapshot_quota: SnapshotQuota


@dataclass(slots=True)
class SessionRestore:
    """Restores one session from its bundle."""

    stores: RestoreStores
    bundle: BundleReport
    session: Session
    rename: SessionRename | None = None

    async def run(self, file: BinaryIO) -> dict[str, int]:
        """Restore everything and return the counts."""
        stores, session = self.stores, self.session
        await stores.lines.create(line_of(session.session_id))
        await self._prepare_rename(file)
        await self._restore_content(file)
        # Reserving event numbers blocks other writers until the commit, so events come last.
        counts = await self._restore_events(file)
        if session.archived_at is not None:
            await stores.sessions.archive(session.session_id, session.archived_at)
        await self._announce()
        await stores.snapshot_quota.check(line_of(session.session_id))
        return counts

    async def dry_run(self, file: BinaryIO) -> dict[str, int]:
        """Return the counts without changes."""
        await self._prepare_rename(file)
        return self.bundle.counts | await count_new_records(self._record_entries(file), self.stores.records)

    async def _prepare_rename(self, file: BinaryIO) -> None:
        """Find the record ids that are taken, if the session gets a new id."""
        old, new = self.bundle.session_id or "", self.session.session_id
        if old == new:
            return
        self.rename = SessionRename(old, new)
        taken: set[str] = set()
        async for some in in_batches(self._record_entries(file)):
            known = await self.stores.records.find_several([record_key(piece) for piece in some])
            taken |= {each.record_id for each in known}
        self.rename = SessionRename(old, new, taken)

    async def _entries(self, file: BinaryIO) -> AsyncIterator[EntryWithContent]:
        """Yield the entries of the bundle, renamed if needed."""
        async for piece in read_cooperatively(file, self.stores.cooperative):
            yield piece if self.rename is None else self.rename.entry(piece)

    async def _record_entries(self, file: BinaryIO) -> AsyncIterator[EntryWithContent]:
        """Yield the entries that stay records."""
        async for piece in self._entries(file):
            if piece.line.number in self.bundle.record_lines:
                yield piece

    def _decoded(self, piece: EntryWithContent) -> Restorable | None:
        return decode_entry(piece, self.bundle.header, self.session.session_id)

    def _labelled(self, piece: EntryWithContent) -> Restorable | None:
        """Decode an entry; a version or message in which something was found gets a label."""
        made, found = self._decoded(piece), self.bundle.labels.get(piece.line.number)
        if found is None:
            return made
        if isinstance(made, Version):
            meta = structs.replace(made.change.meta, trust=joined_label([made.change.meta.trust, found]))
            return structs.replace(made, change=structs.replace(made.change, meta=meta))
        return structs.replace(made, trust=joined_label([made.trust, found])) if isinstance(made, Message) else made

    def _readers(self, piece: EntryWithContent, readable_by: tuple[str, ...]) -> tuple[str, ...]:
        """Return who may read an imported event or record: only admins, if it looks like an instruction to agents."""
        return (ADMINS,) if self.bundle.is_suspicious(piece.line.number) else readable_by

    async def _restore_content(self, file: BinaryIO) -> None:
        """Restore versions, messages, snapshots and redactions."""
        stores, session_id = self.stores, self.session.session_id
        board = BoardRestore(stores.lines, stores.entries, session_id, stores.actor, history=self.bundle.header.history)
        messages = RowBatch[Message](partial(stores.messages.add_all, session_id))
        redactions = RowBatch[Redaction](lambda some: stores.records.redact(*some))
        sent_at: int | None = None
        async for piece in self._entries(file):
            made = None if isinstance(piece.line.record, ContextEvent) else self._labelled(piece)
            match made:
                case Version():
                    await board.add(made)
                case Message():
                    sent_at = max(made.sent_at, sent_at or 0)
                    await messages.add(structs.replace(made, sent_at=sent_at), len(made.content))
                    await self._pin(made)
                case BundleSnapshot():
                    await board.add_snapshot(made)
            redaction = self._redaction(piece, made)
            if redaction is not None:
                await redactions.add(redaction)
        await messages.finish()
        await redactions.finish()
        await stores.messages.set_last_message(session_id, self.bundle.last_message, sent_at)
        await board.finish(self.bundle.lost, to_micros(stores.clock.now()), is_open=self.session.archived_at is None)

    async def _pin(self, message: Message) -> None:
        """Pin a message that was pinned when it was sent, as long as the pins fit."""
        if pins_itself(message, self.stores.actor) and not (message.author or "").startswith(SUBAGENT):
            with suppress(PinLimitExceeded):
                await self.stores.pins.add(
                    ItemPlace.of_message(self.session.session_id, message.message_id), message.content
                )

    def _redaction(self, piece: EntryWithContent, made: Restorable | None) -> Redaction | None:
        """Return the redaction of a restored version or message; a record carries its own."""
        item = piece.line.record
        is_lost = isinstance(made, Version) and decode.lacks_value(made)
        if made is None or is_lost or not isinstance(item, ContextItem):
            return None
        return decode.decode_redaction(item, self.session.session_id, to_micros(self.stores.clock.now()))

    async def _restore_events(self, file: BinaryIO) -> dict[str, int]:
        """Append events and records; a record refers to the last event about it."""
        first = number = await self.stores.event_import.reserve(self.bundle.counts["events"])
        events = RowBatch[StoredEvent](self.stores.event_import.republish)
        counts = {"records": 0, "skipped": 0}
        records = RowBatch[EntryWithContent](partial(self._store_records, first, counts))
        async for piece in self._entries(file):
            if piece.line.number in self.bundle.record_lines:
                await records.add(piece, len(piece.content or b""))
            elif isinstance(piece.line.record, ContextEvent):
                await events.add(self._numbered(piece, number))
                number += 1
        await events.finish()
        await records.finish()
        return self.bundle.counts | counts

    def _numbered(self, piece: EntryWithContent, number: int) -> StoredEvent:
        made = self._decoded(piece)
        if not isinstance(made, StoredEvent):
            raise piece.line.damaged("the event cannot belong to a session with another id")
        readers = self._readers(piece, made.readable_by)
        return replace(made, event=structs.replace(made.event, seq=number), readable_by=readers)

    async def _store_records(self, first: int, counts: dict[str, int], some: Sequence[EntryWithContent]) -> None:
        stores = self.stores
        new = await new_records(some, stores.records)
        rows = [self._row(piece, first) for piece in new]
        without_event = [index for index, row in enumerate(rows) if row.seq < first]
        if without_event:
            number = await stores.event_import.reserve(len(without_event))
            for index in without_event:
                rows[index] = structs.replace(rows[index], seq=number)
                number += 1
            await stores.event_import.republish([self._added_event(rows[index]) for index in without_event])
        await stores.records.add_all(
            [(row, index_keys(record_of(piece))) for row, piece in zip(rows, new, strict=True)]
        )
        for piece in new:
            await store_content(stores.records, self.session.session_id, piece)
        counts["records"] += len(new)
        counts["skipped"] += len(some) - len(new)

    def _row(self, piece: EntryWithContent, first: int) -> StoredRecord:
        """Return the row of a record; without a seq if the bundle has no event about it."""
        entry, record = piece.entry, record_of(piece)
        assert isinstance(entry, BundleRecord)  # noqa: S101 - only records are stored
        now = to_micros(self.stores.clock.now())
        stored = None if entry.stored is UNSET else entry.stored
        last_event = self.bundle.record_lines[piece.line.number]
        return StoredRecord(
            type=record.type,
            record_id=record.id,
            session_id=self.session.session_id,
            status=status_of(record),
            recorded_by=stored.by if stored else self.stores.actor.participant,
            recorded_at=to_micros(stored.at) if stored else now,
            changed_at=to_micros(stored.changed_at) if stored else now,
            seq=_NO_EVENT if last_event is None else first + last_event,
            readable_by=self._readers(piece, entry.readable_by),
            body=_encode(record),
        )

    def _added_event(self, row: StoredRecord) -> StoredEvent:
        event = Event(
            seq=row.seq,
            type=_RECORD_ADDED,
            session_id=self.session.session_id,
            subject=row.record_id,
            actor=row.recorded_by,
            agent_id=principal_of(row.recorded_by),
            at=from_micros(row.recorded_at),
            data={"record_type": row.type},
        )
        return StoredEvent(event, ANYONE, row.readable_by)

    async def _announce(self) -> None:
        header, session = self.bundle.header, self.session
        data = {"bundle_id": header.bundle_id, "digest": self.bundle.digest, "source": header.source}
        await self.stores.outbox.publish(
            NewEvent(
                type=IMPORTED,
                session_id=session.session_id,
                subject=session.session_id,
                actor=self.stores.actor.participant,
                data=data,
            )
        )


async def read_cooperatively(file: BinaryIO, cooperative: Cooperative) -> AsyncIterator[EntryWithContent]:
    """Yield the entries of a bundle, and regularly yield to the event loop."""
    for number, piece in enumerate(entries_with_content(open_bundle(file)), 1):
        if number % _ENTRIES_PER_YIELD == 0:
            await cooperative.yield_to_loop()
        yield piece


async def in_batches(found: AsyncIterator[EntryWithContent]) -> AsyncIterator[list[EntryWithContent]]:
    """Yield entries in batches, to look up many at once."""
    some: list[EntryWithContent] = []
    async for piece in found:
        some.append(piece)
        if len(some) == _BATCH:
            yield some
            some = []
    if some:
        yield some


async def new_records(found: Sequence[EntryWithContent], records: RecordStore) -> list[EntryWithContent]:
    """Return the records that do not exist yet; RecordExists if one exists with other content."""
    known = {
        (each.type, each.record_id): each.body for each in await records.find_several(list(map(record_key, found)))
    }
    new = []
    for piece in found:
        name, body = record_key(piece), _encode(piece.line.record)
        if name not in known:
            new.append(piece)
        elif known[name] != body:
            shown = name[1][:100]
            raise RecordExists(f"A {name[0]} '{shown}' exists already, with other content.", resource_id=shown)
        known[name] = body
    return new


async def count_new_records(found: AsyncIterator[EntryWithContent], records: RecordStore) -> dict[str, int]:
    """Return how many records are new, and how many exist already."""
    counts = {"records": 0, "skipped": 0}
    async for some in in_batches(found):
        new = await new_records(some, records)
        counts["records"] += len(new)
        counts["skipped"] += len(some) - len(new)
    return counts


def record_of(piece: EntryWithContent) -> Record:
    record = piece.line.record
    assert record is not None  # noqa: S101 - called for record entries only
    return record


def record_key(piece: EntryWithContent) -> tuple[str, str]:
    record = record_of(piece)
    return record.type, record.id


async def store_content(records: RecordStore, session_id: str | None, piece: EntryWithContent) -> None:
    item = piece.line.record
    if piece.content is not None and isinstance(item, ContextItem):
        await records.put_content(session_id, item.item_id, piece.content)


class SessionRename:
    """Rewrites every id in a bundle that contains the session id.

    A record whose id is ``taken`` gets a new id, and references to it follow. Free text stays unchanged.
    """

    def __init__(self, old: str, new: str, taken: Collection[str] = ()) -> None:
        self.old = old
        self.new = new
        self._taken = taken
        # Ids of lines, messages, pulls, summaries and surfaces, and URIs of boards and transcripts.
        prefix = r"(?:board|session|message|pull|window|summary):(?://)?|memory:[^:/@\s]+:"
        self._id = re.compile(rf"({prefix}){re.escape(old)}((?:[:/@?#]\S*)?)\Z")

    def entry(self, piece: EntryWithContent) -> EntryWithContent:
        record = piece.line.record
        if record is None:
            return piece
        return msgspec.structs.replace(piece, line=piece.line._replace(record=self.record(record)))

    def record(self, record: Record) -> Record:
        fields = self._rewritten(msgspec.json.decode(_encode(record)), "")
        if isinstance(record, ContextEvent) and record.subject is not msgspec.UNSET:
            fields["subject"] = self._subject(record, record.subject)
        return decode_record(record.type, _encode(fields))

    def _subject(self, event: ContextEvent, subject: str) -> str:
        """Rewrite the subject of an event: the id of a session or a record; keys and messages have other subjects."""
        if subject == self.old and str(event.data.get("type")).startswith(_SESSION_EVENTS):
            return self.new
        return self._ref(subject) if "record_type" in event.data else self._engine_id(subject)

    def _rewritten(self, value: Any, name: str) -> Any:  # noqa: ANN401 - JSON of any shape
        if isinstance(value, dict):
            rewritten = {key: self._rewritten(inner, self._field_of(name, key)) for key, inner in value.items()}
            return (
                {**rewritten, "id": self.new}
                if (value.get("kind"), value.get("id")) == ("session", self.old)
                else rewritten
            )
        if isinstance(value, list):
            return [self._rewritten(inner, name) for inner in value]
        if not isinstance(value, str) or name == _CONTENT_FIELD:
            return value
        if name == "session_id" and value == self.old:
            return self.new
        return self._ref(value) if name in _ID_FIELDS or name.endswith(_REF_SUFFIXES) else self._engine_id(value)

    def _field_of(self, name: str, key: str) -> str:
        """Treat the id inside a reference like the reference itself."""
        return name if key == "id" and name.endswith(_REF_SUFFIXES) else key

    def _ref(self, ref: str) -> str:
        return f"{ref[: _MAX_ID - len(self.new) - 1]}@{self.new}" if ref in self._taken else self._engine_id(ref)

    def _engine_id(self, text: str) -> str:
        return self._id.sub(lambda found: f"{found[1]}{self.new}{found[2]}", text) if self._id.match(text) else text
