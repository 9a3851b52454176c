"""A session that comes with a bundle, made again: its board commit by commit, its messages, its events, its records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.board.store import EntryStore
from weft.capabilities.events.model import EventImport, EventStore
from weft.capabilities.history.store import LineStore
from weft.capabilities.messages.model import Message
from weft.capabilities.messages.store import MessageStore
from weft.capabilities.records.model import ContextEvent, ContextItem
from weft.capabilities.records.recorder import RecordExists, referenced_item_ids, status_of
from weft.capabilities.records.store import RecordStore, Redaction, StoredRecord
from weft.capabilities.sessions.model import line_of
from weft.capabilities.sessions.store import SessionStore
from weft.capabilities.transfer import decode
from weft.capabilities.transfer.bundle_format import BundleRecord, BundleSnapshot
from weft.capabilities.transfer.rename_session import SessionRename
from weft.capabilities.transfer.restore_board import BoardRestore, RowBatch
from weft.capabilities.transfer.validate_bundle import EntryWithContent, decode_entry, entries_with_content, open_bundle
from weft.kernel.clock import Clock, from_micros, to_micros
from weft.kernel.cooperative import Cooperative
from weft.kernel.events import Event, NewEvent, Outbox, StoredEvent
from weft.kernel.identity import Actor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import BinaryIO

    from weft.capabilities.records.model import Record
    from weft.capabilities.sessions.model import Session
    from weft.capabilities.transfer.validate_bundle import BundleReport, Restorable

IMPORTED = "session.imported"
_UNCLASSED = "record.added"
_UNTOLD = 0
_AT_ONCE = 200
_AT_A_STRETCH = 50
_encode = msgspec.json.Encoder().encode


class RestoreStores(msgspec.Struct, frozen=True):
    """Everything that a session is made of, as the one who imports it may change it."""

    actor: Actor
    sessions: SessionStore
    lines: LineStore
    entries: EntryStore
    messages: MessageStore
    records: RecordStore
    events: EventStore
    past: EventImport
    outbox: Outbox
    clock: Clock
    turns: Cooperative


@dataclass(slots=True)
class SessionRestore:
    """A bundle of a session, on its way to become that session."""

    needs: RestoreStores
    found: BundleReport
    session: Session
    renaming: SessionRename | None = None

    async def take(self, file: BinaryIO) -> dict[str, int]:
        """Make everything again and return how much of what."""
        needs, session = self.needs, self.session
        await needs.lines.create(line_of(session.session_id))
        await self._rename(file)
        await self._make(file)
        # From here on others must wait for the numbers of their events, so this comes last.
        counts = await self._tell(file)
        if session.archived_at is not None:
            await needs.sessions.archive(session.session_id, session.archived_at)
        await self._announce()
        return counts

    async def rehearse(self, file: BinaryIO) -> dict[str, int]:
        """Return how much of what would be made, having looked only."""
        await self._rename(file)
        return self.found.counts | await count_new_records(self._kept_in(file), self.needs.records)

    async def _rename(self, file: BinaryIO) -> None:
        """Find out what has to be called otherwise here, if the session is."""
        old, new = self.found.session_id or "", self.session.session_id
        if old == new:
            return
        self.renaming = SessionRename(old, new)
        taken: set[str] = set()
        async for some in in_batches(self._kept_in(file)):
            known = await self.needs.records.find_several([name_of(piece) for piece in some])
            taken |= {each.record_id for each in known}
        self.renaming = SessionRename(old, new, taken)

    async def _pieces(self, file: BinaryIO) -> AsyncIterator[EntryWithContent]:
        """Yield what is in the bundle as it is called here."""
        async for piece in read_cooperatively(file, self.needs.turns):
            yield piece if self.renaming is None else self.renaming.piece(piece)

    async def _kept_in(self, file: BinaryIO) -> AsyncIterator[EntryWithContent]:
        """Yield what stays a record."""
        async for piece in self._pieces(file):
            if piece.line.number in self.found.kept:
                yield piece

    def _made_of(self, piece: EntryWithContent) -> Restorable | None:
        return decode_entry(piece, self.found.header, self.session.session_id, self.session.audience)

    async def _make(self, file: BinaryIO) -> None:
        """Put versions, messages and snapshots where they were."""
        needs, session_id = self.needs, self.session.session_id
        board = BoardRestore(needs.lines, needs.entries, session_id, history=self.found.header.history)
        messages = RowBatch[Message](partial(needs.messages.add_all, session_id))
        redactions = RowBatch[Redaction](lambda some: needs.records.redact(*some))
        sent_at: int | None = None
        async for piece in self._pieces(file):
            made = None if isinstance(piece.line.record, ContextEvent) else self._made_of(piece)
            match made:
                case decode.BoardVersion():
                    await board.add(made)
                case Message():
                    sent_at = max(made.sent_at, sent_at or 0)
                    await messages.add(structs.replace(made, sent_at=sent_at), len(made.content))
                case BundleSnapshot():
                    await board.name(made)
            redaction = self._redaction(piece, made)
            if redaction is not None:
                await redactions.add(redaction)
        await messages.finish()
        await redactions.finish()
        await needs.messages.set_last_message(session_id, self.found.last_message, sent_at)
        await board.finish(self.found.lost, to_micros(needs.clock.now()), is_open=self.session.archived_at is None)

    def _redaction(self, piece: EntryWithContent, made: Restorable | None) -> Redaction | None:
        """Return what was redacted of something that is made again; a record says so itself."""
        item = piece.line.record
        is_silent = isinstance(made, decode.BoardVersion) and made.is_silent
        if made is None or is_silent or not isinstance(item, ContextItem):
            return None
        return decode.decode_redaction(item, self.session.session_id, to_micros(self.needs.clock.now()))

    async def _tell(self, file: BinaryIO) -> dict[str, int]:
        """Add events and records to those that are here, a record with the event that told of it last."""
        first = number = await self.needs.past.reserve(self.found.counts["events"])
        events = RowBatch[StoredEvent](self.needs.past.republish)
        counts = {"records": 0, "skipped": 0}
        records = RowBatch[EntryWithContent](partial(self._keep, first, counts))
        async for piece in self._pieces(file):
            if piece.line.number in self.found.kept:
                await records.add(piece, len(piece.content or b""))
            elif isinstance(piece.line.record, ContextEvent):
                await events.add(self._numbered(piece, number))
                number += 1
        await events.finish()
        await records.finish()
        return self.found.counts | counts

    def _numbered(self, piece: EntryWithContent, number: int) -> StoredEvent:
        made = self._made_of(piece)
        if not isinstance(made, StoredEvent):
            raise piece.line.damaged("the event cannot be told of a session with another id")
        return replace(made, event=structs.replace(made.event, seq=number))

    async def _keep(self, first: int, counts: dict[str, int], some: Sequence[EntryWithContent]) -> None:
        needs = self.needs
        new = await new_records(some, needs.records)
        kept = [self._kept(piece, first) for piece in new]
        untold = [place for place, record in enumerate(kept) if record.seq < first]
        if untold:
            number = await needs.past.reserve(len(untold))
            for place in untold:
                kept[place] = structs.replace(kept[place], seq=number)
                number += 1
            await needs.past.republish([self._told_now(kept[place]) for place in untold])
        await needs.records.add_all(
            [(record, referenced_item_ids(record_of(piece))) for record, piece in zip(kept, new, strict=True)]
        )
        for piece in new:
            await store_content(needs.records, self.session.session_id, piece)
        counts["records"] += len(new)
        counts["skipped"] += len(some) - len(new)

    def _kept(self, piece: EntryWithContent, first: int) -> StoredRecord:
        """Return how a record is kept; with no number if no event came with it."""
        entry, record = piece.entry, record_of(piece)
        assert isinstance(entry, BundleRecord)  # noqa: S101 - what is kept is a record
        now = to_micros(self.needs.clock.now())
        stored = None if entry.stored is UNSET else entry.stored
        told = self.found.kept[piece.line.number]
        return StoredRecord(
            type=record.type,
            record_id=record.id,
            session_id=self.session.session_id,
            status=status_of(record),
            recorded_by=stored.by if stored else self.needs.actor.participant,
            recorded_at=to_micros(stored.at) if stored else now,
            changed_at=to_micros(stored.changed_at) if stored else now,
            seq=_UNTOLD if told is None else first + told,
            readable_by=entry.readable_by,
            body=_encode(record),
        )

    def _told_now(self, kept: StoredRecord) -> StoredEvent:
        event = Event(
            seq=kept.seq,
            type=_UNCLASSED,
            session_id=self.session.session_id,
            subject=kept.record_id,
            actor=kept.recorded_by,
            at=from_micros(kept.recorded_at),
            data={"record_type": kept.type},
        )
        return StoredEvent(event, self.session.audience, kept.readable_by)

    async def _announce(self) -> None:
        header, session = self.found.header, self.session
        data = {"bundle_id": header.bundle_id, "digest": self.found.digest, "source": header.source}
        await self.needs.outbox.publish(
            NewEvent(
                type=IMPORTED,
                session_id=session.session_id,
                subject=session.session_id,
                actor=self.needs.actor.participant,
                participants=session.audience,
                data=data,
            )
        )


async def read_cooperatively(file: BinaryIO, turns: Cooperative) -> AsyncIterator[EntryWithContent]:
    """Yield the entries of a bundle, and let others have a turn now and then."""
    for number, piece in enumerate(entries_with_content(open_bundle(file)), 1):
        if number % _AT_A_STRETCH == 0:
            await turns.yield_to_loop()
        yield piece


async def in_batches(found: AsyncIterator[EntryWithContent]) -> AsyncIterator[list[EntryWithContent]]:
    """Yield entries several at a time, so that many are looked up at once."""
    some: list[EntryWithContent] = []
    async for piece in found:
        some.append(piece)
        if len(some) == _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


async def new_records(found: Sequence[EntryWithContent], records: RecordStore) -> list[EntryWithContent]:
    """Return those records that are not here, word for word; refuse one that is here in other words."""
    known = {(each.type, each.record_id): each.body for each in await records.find_several(list(map(name_of, found)))}
    unknown = []
    for piece in found:
        name, body = name_of(piece), _encode(piece.line.record)
        if name not in known:
            unknown.append(piece)
        elif known[name] != body:
            shown = name[1][:100]
            raise RecordExists(
                f"There is a {name[0]} '{shown}' already, and it says something else.", resource_id=shown
            )
        known[name] = body
    return unknown


async def count_new_records(found: AsyncIterator[EntryWithContent], records: RecordStore) -> dict[str, int]:
    """Return how many records would be kept, and how many are here."""
    counts = {"records": 0, "skipped": 0}
    async for some in in_batches(found):
        unknown = await new_records(some, records)
        counts["records"] += len(unknown)
        counts["skipped"] += len(some) - len(unknown)
    return counts


def record_of(piece: EntryWithContent) -> Record:
    record = piece.line.record
    assert record is not None  # noqa: S101 - what is kept is a record
    return record


def name_of(piece: EntryWithContent) -> tuple[str, str]:
    record = record_of(piece)
    return record.type, record.id


async def store_content(records: RecordStore, session_id: str | None, piece: EntryWithContent) -> None:
    item = piece.line.record
    if piece.content is not None and isinstance(item, ContextItem):
        await records.put_content(session_id, item.item_id, piece.content)
