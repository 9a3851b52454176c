"""Restores the session of a bundle: board commits, messages, events and records."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import structs

from weftline.exchange.transfer.restore_plan import (
    NO_EVENT,
    NewCommits,
    NewEntries,
    NewEvents,
    NewMessages,
    NewRecords,
    NewRedactions,
    NewTag,
    NewWindow,
    NextExpiry,
    PlannedRecord,
    WindowStep,
    record_key,
    record_of,
)
from weftline.history.item_ids import VersionId
from weftline.history.line_kinds import line_of
from weftline.history.lines import LineStore
from weftline.history.model import Author, Commit, Head, new_salt
from weftline.history.snapshot_quota import SnapshotQuota
from weftline.indexing.pins import ItemPlace, PinLimitExceeded, Pins
from weftline.kernel.clock import Clock, from_micros, to_micros
from weftline.kernel.events import Event, NewEvent, StoredEvent
from weftline.kernel.identity import ANYONE, Actor, principal_of
from weftline.kernel.outbox import Outbox
from weftline.kernel.ports import Cooperative
from weftline.records.model import ContextItem
from weftline.records.schemas import StoredRecord
from weftline.records.sql import RecordStore
from weftline.sessions.events.sql import EventStore
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.recorder import RecordExists
from weftline.sessions.sql import SessionStore
from weftline.state.board.board_writer import change_of
from weftline.state.board.sql import EntryStore
from weftline.windows.sql import WindowStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from weftline.exchange.transfer.restore_plan import ImportPlan, Step
    from weftline.exchange.transfer.validate_bundle import BundleReport, EntryWithContent
    from weftline.sessions.model import Session
    from weftline.state.board.model import Entry

T = TypeVar("T")
IMPORTED: Final = "session.imported"
_RECORD_ADDED = "record.added"
_NUMBERED_ON = "imported under the name of a deleted session: versions go on above its own"
_BATCH = 200
_ENTRIES_PER_YIELD = 50
_written_by = attrgetter("written_by")
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
    outbox: Outbox
    clock: Clock
    cooperative: Cooperative
    pins: Pins
    snapshot_quota: SnapshotQuota
    windows: WindowStore


@dataclass(slots=True)
class SessionRestore:
    """Carries out the plan of a restore, in one transaction."""

    stores: RestoreStores
    bundle: BundleReport
    session: Session
    _head: Head = field(init=False)
    _windows: dict[str, Head] = field(default_factory=dict)
    # The highest version of a key in an erased session of the same name.
    _erased_version: int = 0
    _first_event: int = 0
    _counts: dict[str, int] = field(default_factory=lambda: {"records": 0, "skipped": 0})

    def __post_init__(self) -> None:
        self._head = Head.of_new_line(line_of(self.session.session_id))

    async def run(self, plan: ImportPlan) -> dict[str, int]:
        """Restore everything and return the counts."""
        stores, session = self.stores, self.session
        await stores.lines.create(self._head.line_id)
        self._erased_version = (await stores.lines.before_first(self._head.line_id)).version
        for step in plan.content:
            await self._take(step)
        await stores.messages.set_last_message(session.session_id, self.bundle.last_message, plan.last_sent_at)
        # Reserving event numbers blocks other writers until the commit, so events come last.
        self._first_event = await stores.outbox.reserve(self.bundle.counts["events"])
        for step in plan.events:
            await self._take(step)
        if session.archived_at is not None:
            await stores.sessions.archive(session.session_id, session.archived_at)
        await self._announce()
        await stores.snapshot_quota.check(self._head.line_id)
        return self.bundle.counts | self._counts

    async def _take(self, step: Step) -> None:
        stores, session_id = self.stores, self.session.session_id
        match step:
            case NewCommits(commits):
                await stores.lines.put_blobs({name: value for each in commits for name, value in each.values.items()})
                self._head = await stores.lines.append_all(self._head, [(each.commit, each.tokens) for each in commits])
            case NewTag(tag):
                await stores.lines.tag(self._head.line_id, tag)
            case NewEntries(entries):
                await stores.entries.put_all(session_id, await self._number_on(entries))
            case NextExpiry(at):
                await stores.lines.set_next_expiry(self._head.line_id, at)
            case WindowStep() | NewWindow():
                await self._take_window(step)
            case NewMessages(messages, pinned):
                await stores.messages.add_all(session_id, messages)
                await self._pin(pinned)
            case NewRedactions(redactions):
                await stores.records.redact(*redactions)
            case NewEvents(events):
                await stores.outbox.republish([self._numbered(each) for each in events])
            case NewRecords(records):
                await self._store_records(records)
        await stores.cooperative.yield_to_loop()

    async def _number_on(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Write current values once more, above the versions of an erased session of this name, so that none repeats.

        The bundle's own versions stay as they are: its records name them.
        """
        old = [entry for entry in entries if entry.version <= self._erased_version]
        if not old:
            return entries
        new = [structs.replace(entry, version=self._erased_version + 1) for entry in old]
        now = to_micros(self.stores.clock.now())
        for author, some in groupby(sorted(new, key=_written_by), _written_by):
            line_id, seq = self._head.line_id, self._head.seq + 1
            who, changes = Author(author, principal_of(author)), tuple(change_of(entry) for entry in some)
            commit = Commit(line_id, seq, who, now, _NUMBERED_ON, None, changes, salt=new_salt())
            self._head = await self.stores.lines.append_all(self._head, [(commit, self._head.weight)])
        names = {self._item_id(before): self._item_id(after) for before, after in zip(old, new, strict=True)}
        redactions = await self.stores.records.redactions([*names])
        await self.stores.records.redact(
            *(structs.replace(each, record_id=names[name]) for name, each in redactions.items())
        )
        return [*(entry for entry in entries if entry.version > self._erased_version), *new]

    def _item_id(self, entry: Entry) -> str:
        return str(VersionId(self._head.line_id, entry.key, entry.incarnation, entry.version))

    async def _take_window(self, step_of_window: WindowStep | NewWindow) -> None:
        if isinstance(step_of_window, NewWindow):
            await self.stores.windows.add(step_of_window.settings)
            return
        lines, (line_id, step) = self.stores.lines, step_of_window
        if line_id not in self._windows:
            await lines.create(line_id)
            self._windows[line_id] = Head.of_new_line(line_id)
        if isinstance(step, NewTag):
            await lines.tag(line_id, step.tag)
            return
        await lines.put_blobs({name: value for each in step.commits for name, value in each.values.items()})
        commits = [(each.commit, each.tokens) for each in step.commits]
        self._windows[line_id] = await lines.append_all(self._windows[line_id], commits)

    async def _pin(self, messages: Sequence[tuple[int, str]]) -> None:
        """Pin messages as long as the pins fit."""
        for message_id, content in messages:
            with suppress(PinLimitExceeded):
                await self.stores.pins.add(ItemPlace.of_message(self.session.session_id, message_id), content)

    def _numbered(self, stored: StoredEvent) -> StoredEvent:
        return replace(stored, event=structs.replace(stored.event, seq=self._first_event + stored.event.seq))

    async def _store_records(self, some: Sequence[PlannedRecord]) -> None:
        stores = self.stores
        new = await _unknown(some, _planned_name, stores.records)
        rows = await self._with_events([each.row for each in new])
        await stores.records.add_all([(row, each.items) for row, each in zip(rows, new, strict=True)])
        for each in new:
            if each.content is not None:
                await stores.records.put_content(self.session.session_id, each.row.record_id, each.content)
        self._counts["records"] += len(new)
        self._counts["skipped"] += len(some) - len(new)

    async def _with_events(self, rows: Sequence[StoredRecord]) -> list[StoredRecord]:
        """Return the rows with numbers of events; those without an event in the bundle get one."""
        without_event = sum(row.seq == NO_EVENT for row in rows)
        number = await self.stores.outbox.reserve(without_event) if without_event else 0
        numbered = []
        for row in rows:
            if row.seq == NO_EVENT:
                numbered.append(structs.replace(row, seq=number))
                number += 1
            else:
                numbered.append(structs.replace(row, seq=self._first_event + row.seq))
        added = [new for old, new in zip(rows, numbered, strict=True) if old.seq == NO_EVENT]
        await self.stores.outbox.republish([self._added_event(row) for row in added])
        return numbered

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


async def cooperatively(
    entries: Iterator[EntryWithContent], cooperative: Cooperative
) -> AsyncIterator[EntryWithContent]:
    """Yield the entries of a bundle, and regularly yield to the event loop."""
    for number, piece in enumerate(entries, 1):
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
    return await _unknown(found, lambda piece: (record_key(piece), _encode(record_of(piece))), records)


def _planned_name(planned: PlannedRecord) -> tuple[tuple[str, str], bytes]:
    return (planned.row.type, planned.row.record_id), planned.row.body


async def _unknown(
    found: Sequence[T], name_and_body: Callable[[T], tuple[tuple[str, str], bytes]], records: RecordStore
) -> list[T]:
    names = [name_and_body(each) for each in found]
    stored = await records.find_several([name for name, _ in names])
    known = {(each.type, each.record_id): each.body for each in stored}
    new = []
    for each, (name, body) in zip(found, names, strict=True):
        if name not in known:
            new.append(each)
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


async def store_content(records: RecordStore, session_id: str | None, piece: EntryWithContent) -> None:
    item = piece.line.record
    if piece.content is not None and isinstance(item, ContextItem):
        await records.put_content(session_id, item.item_id, piece.content)
