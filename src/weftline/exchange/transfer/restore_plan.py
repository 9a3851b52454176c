"""Decodes the session of a bundle into steps before its transaction, which then only stores rows."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, field, replace
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, structs

from weftline.exchange.transfer import decode
from weftline.exchange.transfer.bundle_format import BundleRecord, BundleSnapshot, BundleWindow
from weftline.exchange.transfer.decode import lacks_value
from weftline.exchange.transfer.validate_bundle import decode_entry, entries_with_content, open_bundle
from weftline.history.line_kinds import line_of
from weftline.history.model import (
    SYSTEM,
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    Tag,
    Version,
    blob_hash,
    new_salt,
)
from weftline.history.snapshot_quota import snapshot_owner
from weftline.indexing.pins import may_pin_for_others
from weftline.kernel.clock import to_micros
from weftline.kernel.events import StoredEvent
from weftline.kernel.identity import ANYONE
from weftline.records.model import RECORD_TYPES, ContextEvent, ContextItem, decode_record
from weftline.records.schemas import Redaction, StoredRecord
from weftline.safety.trust.model import joined_label
from weftline.sessions.messages.model import ADMINS, Message, pins_itself
from weftline.sessions.recorder import index_keys, status_of
from weftline.state.board.model import Entry
from weftline.windows.model import WindowSettings, content_key, window_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from weftline.exchange.transfer.decode import WindowVersion
    from weftline.exchange.transfer.validate_bundle import BundleReport, EntryWithContent, Restorable, WindowUse
    from weftline.kernel.identity import Actor
    from weftline.records.model import Record
    from weftline.safety.trust.model import TrustLabel
    from weftline.sessions.model import Session


# Plans the restore of a board from its versions: batches of commits, tags, and the entries that result.

T = TypeVar("T")
# Limits of one batch.
_MAX_ROWS = 200
_MAX_CHARACTERS = 2**20
_NOT_IN_BUNDLE = "not in the bundle"


class RowBatch(Generic[T]):
    """Collects rows and passes them on in batches."""

    def __init__(self, write: Callable[[Sequence[T]], None]) -> None:
        self._write = write
        self._rows: list[T] = []
        self._size = 0

    def add(self, row: T, size: int = 0) -> None:
        self._rows.append(row)
        self._size += size
        if len(self._rows) >= _MAX_ROWS or self._size >= _MAX_CHARACTERS:
            self.finish()

    def finish(self) -> None:
        rows, self._rows, self._size = self._rows, [], 0
        if rows:
            self._write(rows)


class PendingCommit(NamedTuple):
    """A commit with the total tokens of the board after it, and its new values."""

    commit: Commit
    tokens: int
    values: dict[bytes, str]


class NewCommits(NamedTuple):
    """Commits to append."""

    commits: Sequence[PendingCommit]


class NewTag(NamedTuple):
    """A tag of the commits before it."""

    tag: Tag


class NewEntries(NamedTuple):
    """Current entries of the board."""

    entries: Sequence[Entry]


class NextExpiry(NamedTuple):
    """When the first entry expires."""

    at: int | None


BoardStep = NewCommits | NewTag | NewEntries | NextExpiry


@dataclass(frozen=True, slots=True)
class _CommitInfo:
    """Author, time, reason and step of a commit."""

    author: Author
    at: int
    reason: str
    step: str | None = None
    salt: bytes | None = None


class BoardPlan:
    """Plans the restore of a board commit by commit, from versions in their original order."""

    def __init__(self, emit: Callable[[BoardStep], None], line_id: str, actor: Actor, *, history: bool) -> None:
        self._emit = emit
        self._actor = actor
        self._history = history
        self._line_id = line_id
        self._seq = 0
        self._tokens = 0
        self._current: dict[str, Entry] = {}
        self._versions: list[Version] = []
        self._pending = RowBatch[PendingCommit](lambda commits: emit(NewCommits(commits)))

    def add(self, version: Version) -> None:
        """Add a version; consecutive versions with one seq form one commit."""
        if self._versions and self._versions[0].seq != version.seq:
            self._commit()
        if not self._versions:
            self._fill_up_to(version.seq - 1, version.committed_at)
        self._versions.append(version)

    def add_snapshot(self, snapshot: BundleSnapshot) -> None:
        self._commit()
        # A named snapshot counts for the caller: its author may be unknown here.
        owner = None if snapshot.automatic else snapshot_owner(self._line_id, self._actor)
        created_at = to_micros(snapshot.created_at)
        tag = Tag(snapshot.label, snapshot.seq, snapshot.created_by, created_at, snapshot.automatic, owner)
        self._fill_up_to(tag.seq, tag.created_at)
        self._pending.finish()
        self._emit(NewTag(tag))

    def finish(self, lost: Mapping[str, tuple[int, int]], now: int, *, is_open: bool) -> None:
        """Plan the current entries and the next expiry. ``lost`` keys are deleted now."""
        self._commit()
        if lost:
            tombstones = tuple(
                _tombstone(Change(key, *number, ChangeKind.WRITE, None, ChangeMeta())) for key, number in lost.items()
            )
            self._add_commit(_CommitInfo(SYSTEM, now, _NOT_IN_BUNDLE), tombstones)
        self._pending.finish()
        entries = RowBatch[Entry](lambda some: self._emit(NewEntries(some)))
        for entry in self._current.values():
            entries.add(entry)
        entries.finish()
        expiries = [entry.expires_at for entry in self._current.values() if entry.expires_at is not None]
        self._emit(NextExpiry(min(expiries, default=None) if is_open else None))

    def _fill_up_to(self, seq: int, at: int) -> None:
        """Fill missing commits with empty ones, so that later commits keep their numbers."""
        while self._history and self._seq < seq:
            self._add_commit(_CommitInfo(SYSTEM, at, _NOT_IN_BUNDLE))

    def _commit(self) -> None:
        versions, self._versions = self._versions, []
        if not versions:
            return
        first = versions[0]
        author = Author(first.author, first.principal_id)
        info = _CommitInfo(author, first.committed_at, first.reason, first.step, versions[-1].salt)
        if all(map(lacks_value, versions)):
            info = _CommitInfo(SYSTEM, first.committed_at, _NOT_IN_BUNDLE, first.step)
        for version in versions:
            self._set_current(version)
        changes = tuple(_tombstone(each.change) if lacks_value(each) else each.change for each in versions)
        self._add_commit(info, changes, _values(versions))

    def _add_commit(
        self, info: _CommitInfo, changes: tuple[Change, ...] = (), values: dict[bytes, str] | None = None
    ) -> None:
        for change in changes:
            if change.act is not ChangeKind.WRITE:
                self._remove(change.key)
        self._seq += 1
        salt = info.salt or new_salt()
        commit = Commit(self._line_id, self._seq, info.author, info.at, info.reason, info.step, changes, salt=salt)
        brought = values or {}
        self._pending.add(PendingCommit(commit, self._tokens, brought), sum(map(len, brought.values())))

    def _remove(self, key: str) -> None:
        before = self._current.pop(key, None)
        self._tokens -= before.tokens if before else 0

    def _set_current(self, version: Version) -> None:
        change, meta = version.change, version.change.meta
        self._remove(change.key)
        if change.blob_hash is None:
            return
        self._tokens += meta.tokens
        self._current[change.key] = Entry(
            key=change.key,
            incarnation=change.incarnation,
            version=change.version,
            blob_hash=change.blob_hash,
            tokens=meta.tokens,
            written_by=version.author,
            written_at=version.committed_at,
            expires_at=meta.expires_at,
            readable_by=ANYONE if meta.readable_by is None else meta.readable_by,
            writable_by=ANYONE if meta.writable_by is None else meta.writable_by,
            trust=meta.trust,
            media_type=meta.media_type,
        )


def _values(versions: Sequence[Version]) -> dict[bytes, str]:
    return {each.change.blob_hash: each.value for each in versions if each.change.blob_hash and each.value is not None}


def _tombstone(change: Change) -> Change:
    """Return a deletion in place of a version without value: no older version may become the current one."""
    readers = ChangeMeta(readable_by=change.meta.readable_by, not_imported=True)
    return structs.replace(change, act=ChangeKind.DELETE, blob_hash=None, meta=readers)


# Plans the restore of windows: the commits of their lines, their checkpoints and their settings.


class WindowStep(NamedTuple):
    """Commits or a checkpoint of the line of a window."""

    line_id: str
    step: NewCommits | NewTag


class NewWindow(NamedTuple):
    """The settings of a window."""

    settings: WindowSettings


class WindowPlans:
    """Plans the restore of all windows of a session."""

    def __init__(
        self,
        emit: Callable[[WindowStep | NewWindow], None],
        session_id: str,
        actor: Actor,
        uses: Mapping[str, WindowUse],
        *,
        history: bool,
    ) -> None:
        self._emit = emit
        self._session_id = session_id
        self._actor = actor
        self._history = history
        self._lines: dict[str, BoardPlan] = {}
        # The last change of each content that is a value of its own.
        self._contents: dict[tuple[str, str], Change] = {}
        self._windows: list[BundleWindow] = []
        self._uses = uses

    def add(self, made: WindowVersion | BundleWindow) -> None:
        if isinstance(made, BundleWindow):
            self._windows.append(made)
            for checkpoint in made.checkpoints:
                self._line(self._line_id(made)).add_snapshot(checkpoint)
            return
        line = self._line(made.line_id)
        line.add(made.version)
        content = self._content(made)
        if content is not None:
            line.add(structs.replace(made.version, change=content, value=made.content))

    def finish(self, now: int) -> None:
        for window in self._windows:
            use = self._uses[window.agent_id]
            fields = structs.asdict(window) | {
                "session_id": self._session_id,
                "created_at": to_micros(window.created_at),
                "updated_at": to_micros(window.updated_at),
                "unsaved_since": None,
                "last_number": use.events,
                "stored_bytes": use.bytes,
            }
            self._emit(NewWindow(WindowSettings(**{name: fields[name] for name in WindowSettings.__struct_fields__})))
        for line in self._lines.values():
            line.finish({}, now, is_open=False)

    def _line_id(self, window: BundleWindow) -> str:
        return window_line(self._session_id, window.agent_id)

    def _line(self, line_id: str) -> BoardPlan:
        if line_id not in self._lines:
            emit = self._emitter(line_id)
            self._lines[line_id] = BoardPlan(emit, line_id, self._actor, history=self._history)
        return self._lines[line_id]

    def _emitter(self, line_id: str) -> Callable[[BoardStep], None]:
        def emit(step: BoardStep) -> None:
            # The entries of a window are not stored besides its history, and do not expire.
            if isinstance(step, NewCommits | NewTag):
                self._emit(WindowStep(line_id, step))

        return emit

    def _content(self, made: WindowVersion) -> Change | None:
        """Return what a version of an event changes in its separate content; None if there is none."""
        name = made.line_id, content_key(made.version.change.key)
        last = self._contents.get(name)
        is_live = last is not None and last.act is ChangeKind.WRITE
        if made.content is not None:
            incarnation = 1 if last is None else last.incarnation + (not is_live)
            number = last.version + 1 if last is not None and is_live else 1
            meta = ChangeMeta(size=len(made.content.encode()), trust=made.version.change.meta.trust)
            change = Change(name[1], incarnation, number, ChangeKind.WRITE, blob_hash(made.content), meta)
        elif last is not None and is_live:
            change = Change(name[1], last.incarnation, last.version, ChangeKind.DELETE, None, ChangeMeta())
        else:
            return None
        self._contents[name] = change
        return change


# Rewrites the ids in a bundle whose session is imported under another id.

_MAX_ID = 500
# Fields that hold a record id.
_ID_FIELDS = frozenset(kind.id_field for kind in RECORD_TYPES.values())
_REF_SUFFIXES = ("_ref", "_refs")
_CONTENT_FIELD = "content"
_SESSION_EVENTS = "session."


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
            if pins_itself(message, self.actor.participant) and may_pin_for_others(message.author or "")
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
