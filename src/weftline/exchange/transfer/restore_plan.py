"""Decodes the session of a bundle into steps before its transaction, which then only stores rows."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, structs

from weftline.exchange.transfer import decode
from weftline.exchange.transfer.bundle_format import BundleRecord, BundleSnapshot, BundleWindow
from weftline.exchange.transfer.restore_board import BoardPlan, BoardStep, RowBatch
from weftline.exchange.transfer.restore_windows import NewWindow, WindowPlans, WindowStep
from weftline.exchange.transfer.session_rename import SessionRename
from weftline.exchange.transfer.validate_bundle import decode_entry, entries_with_content, open_bundle
from weftline.history.board_lines import line_of
from weftline.history.model import Version
from weftline.kernel.clock import to_micros
from weftline.kernel.events import StoredEvent
from weftline.kernel.identity import SUBAGENT
from weftline.records.model import ContextEvent, ContextItem
from weftline.records.store import Redaction, StoredRecord
from weftline.safety.trust.model import joined_label
from weftline.sessions.messages.categories import pins_itself
from weftline.sessions.messages.model import ADMINS, Message
from weftline.sessions.recorder import index_keys, status_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import BinaryIO

    from weftline.exchange.transfer.validate_bundle import BundleReport, EntryWithContent, Restorable
    from weftline.kernel.identity import Actor
    from weftline.records.model import Record
    from weftline.safety.trust.model import TrustLabel
    from weftline.sessions.model import Session

# Place of the last event about a record that has none in the bundle.
NO_EVENT = -1
_MAX_MEMORY_BYTES = 4 * 2**20
_encode = msgspec.json.Encoder().encode


class PlannedRecord(NamedTuple):
    """A record; ``seq`` of its row is the place of the last event about it in the bundle."""

    row: StoredRecord
    items: tuple[str, ...]
    content: bytes | None


class NewMessages(NamedTuple):
    """Messages to add; of those that pin themselves, number and content."""

    messages: Sequence[Message]
    pinned: Sequence[tuple[int, str]]


class NewRedactions(NamedTuple):
    """Redactions of restored versions and messages."""

    redactions: Sequence[Redaction]


class NewEvents(NamedTuple):
    """Events to append; ``seq`` of each is its place in the bundle."""

    events: Sequence[StoredEvent]


class NewRecords(NamedTuple):
    """Records to add, unless they exist already."""

    records: Sequence[PlannedRecord]


Step = BoardStep | WindowStep | NewWindow | NewMessages | NewRedactions | NewEvents | NewRecords


class StepFile:
    """Steps in a temporary file, so that those of a large bundle take little memory."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES, prefix="weftline-import-")  # noqa: SIM115 - closed by its owner

    def add(self, step: Step) -> None:
        pickle.dump(step, self._file, protocol=pickle.HIGHEST_PROTOCOL)

    def __iter__(self) -> Iterator[Step]:
        self._file.seek(0)
        while True:
            try:
                step: Step = pickle.load(self._file)  # noqa: S301 - a file without a name, written by this process
            except EOFError:
                return
            yield step

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class ImportPlan:
    """Steps that restore a session: content first, then events and records, which need numbers of the log."""

    session: Session
    content: StepFile = field(default_factory=StepFile)
    events: StepFile = field(default_factory=StepFile)
    last_sent_at: int | None = None

    def close(self) -> None:
        self.content.close()
        self.events.close()


@dataclass(slots=True)
class SessionPlanner:
    """Plans the restore of one session from its bundle. Uses no database, so that it can run in any thread."""

    bundle: BundleReport
    session: Session
    actor: Actor
    now: int
    rename: SessionRename | None = None

    @classmethod
    def of(
        cls, bundle: BundleReport, session: Session, actor: Actor, now: int, taken: Collection[str]
    ) -> SessionPlanner:
        """Return the planner of a session; records whose id is ``taken`` get a new one if the session does."""
        old = bundle.session_id or ""
        is_same = old == session.session_id
        return cls(bundle, session, actor, now, None if is_same else SessionRename(old, session.session_id, taken))

    def plan(self, file: BinaryIO) -> ImportPlan:
        """Read the bundle once and plan everything. The caller closes the plan."""
        plan = ImportPlan(self.session)
        try:
            self._plan(file, plan)
        except BaseException:
            plan.close()
            raise
        return plan

    def entries(self, file: BinaryIO) -> Iterator[EntryWithContent]:
        """Yield the entries of the bundle, renamed if needed."""
        for piece in entries_with_content(open_bundle(file)):
            yield piece if self.rename is None else self.rename.entry(piece)

    def record_entries(self, file: BinaryIO) -> Iterator[EntryWithContent]:
        """Yield the entries that stay records."""
        return (piece for piece in self.entries(file) if piece.line.number in self.bundle.record_lines)

    def _plan(self, file: BinaryIO, plan: ImportPlan) -> None:
        history = self.bundle.header.history
        board = BoardPlan(plan.content.add, line_of(self.session.session_id), self.actor, history=history)
        name, uses = self.session.session_id, self.bundle.windows
        windows = WindowPlans(plan.content.add, name, self.actor, uses, history=history)
        messages = RowBatch[Message](lambda some: plan.content.add(NewMessages(some, self._pinned(some))))
        redactions = RowBatch[Redaction](lambda some: plan.content.add(NewRedactions(some)))
        events = RowBatch[StoredEvent](lambda some: plan.events.add(NewEvents(some)))
        records = RowBatch[PlannedRecord](lambda some: plan.events.add(NewRecords(some)))
        place = 0
        for piece in self.entries(file):
            if piece.line.number in self.bundle.record_lines:
                records.add(self._record(piece), len(piece.content or b""))
            if isinstance(piece.line.record, ContextEvent):
                if piece.line.number not in self.bundle.record_lines:
                    events.add(self._event(piece, place))
                    place += 1
                continue
            made = self._labelled(piece)
            self._plan_redaction(piece, made, redactions)
            match made:
                case Version():
                    board.add(made)
                case Message():
                    plan.last_sent_at = max(made.sent_at, plan.last_sent_at or 0)
                    messages.add(structs.replace(made, sent_at=plan.last_sent_at), len(made.content))
                case BundleSnapshot():
                    board.add_snapshot(made)
                case decode.WindowVersion() | BundleWindow():
                    windows.add(made)
        for rows in (messages, redactions, events, records):
            rows.finish()
        board.finish(self.bundle.lost, self.now, is_open=self.session.archived_at is None)
        windows.finish(self.now)

    def _decoded(self, piece: EntryWithContent) -> Restorable | None:
        return decode_entry(piece, self.bundle.header, self.session.session_id)

    def _labelled(self, piece: EntryWithContent) -> Restorable | None:
        """Decode an entry; a version or message in which something was found gets a label."""
        made, found = self._decoded(piece), self.bundle.labels.get(piece.line.number)
        if found is None:
            return made
        if isinstance(made, Version):
            return _labelled_version(made, found)
        if isinstance(made, decode.WindowVersion):
            return made._replace(version=_labelled_version(made.version, found))
        return structs.replace(made, trust=joined_label([made.trust, found])) if isinstance(made, Message) else made

    def _readers(self, piece: EntryWithContent, readable_by: tuple[str, ...]) -> tuple[str, ...]:
        """Return who may read an imported event or record: only admins, if it looks like an instruction to agents."""
        return (ADMINS,) if self.bundle.is_suspicious(piece.line.number) else readable_by

    def _pinned(self, messages: Sequence[Message]) -> list[tuple[int, str]]:
        """Return the messages that were pinned when they were sent."""
        return [
            (message.message_id, message.content)
            for message in messages
            if pins_itself(message, self.actor) and not (message.author or "").startswith(SUBAGENT)
        ]

    def _plan_redaction(
        self, piece: EntryWithContent, made: Restorable | None, redactions: RowBatch[Redaction]
    ) -> None:
        """Plan the redaction of a restored version or message; a record carries its own."""
        item = piece.line.record
        is_lost = isinstance(made, Version) and decode.lacks_value(made)
        if made is None or is_lost or not isinstance(item, ContextItem):
            return
        redaction = decode.decode_redaction(item, self.session.session_id, self.now)
        if redaction is not None:
            redactions.add(redaction)

    def _event(self, piece: EntryWithContent, place: int) -> StoredEvent:
        made = self._decoded(piece)
        if not isinstance(made, StoredEvent):
            raise piece.line.damaged("the event cannot belong to a session with another id")
        readers = self._readers(piece, made.readable_by)
        return replace(made, event=structs.replace(made.event, seq=place), readable_by=readers)

    def _record(self, piece: EntryWithContent) -> PlannedRecord:
        entry, record = piece.entry, record_of(piece)
        assert isinstance(entry, BundleRecord)  # noqa: S101 - only records are stored
        stored = None if entry.stored is UNSET else entry.stored
        last_event = self.bundle.record_lines[piece.line.number]
        row = StoredRecord(
            type=record.type,
            record_id=record.id,
            session_id=self.session.session_id,
            status=status_of(record),
            recorded_by=stored.by if stored else self.actor.participant,
            recorded_at=to_micros(stored.at) if stored else self.now,
            changed_at=to_micros(stored.changed_at) if stored else self.now,
            seq=NO_EVENT if last_event is None else last_event,
            readable_by=self._readers(piece, entry.readable_by),
            body=_encode(record),
        )
        content = piece.content if isinstance(record, ContextItem) else None
        return PlannedRecord(row, tuple(index_keys(record)), content)


def _labelled_version(version: Version, found: TrustLabel) -> Version:
    meta = structs.replace(version.change.meta, trust=joined_label([version.change.meta.trust, found]))
    return structs.replace(version, change=structs.replace(version.change, meta=meta))


def record_of(piece: EntryWithContent) -> Record:
    record = piece.line.record
    assert record is not None  # noqa: S101 - called for record entries only
    return record


def record_key(piece: EntryWithContent) -> tuple[str, str]:
    record = record_of(piece)
    return record.type, record.id
