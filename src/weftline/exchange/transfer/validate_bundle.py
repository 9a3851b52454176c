"""Validates a whole bundle before an import writes anything, and reports what it contains."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, structs

from weftline.exchange.transfer import decode
from weftline.exchange.transfer.bundle_format import (
    BundleContent,
    BundleDamaged,
    BundleHeader,
    BundleReader,
    BundleRecord,
    BundleSession,
    BundleSnapshot,
    BundleWindow,
)
from weftline.history.item_ids import MessageItemId, VersionId
from weftline.history.line_kinds import line_of
from weftline.history.model import ChangeKind, Version
from weftline.kernel.events import StoredEvent
from weftline.records.model import ContextEvent, ContextItem
from weftline.records.record_ids import ReceiptOrigin
from weftline.records.validation import InvalidRecord, Problem, ValidationReport, check_record
from weftline.safety.trust.model import Trust, TrustLabel
from weftline.sessions.messages.model import Message
from weftline.sessions.model import ALL_SESSIONS
from weftline.windows.model import agent_of, window_line
from weftline.windows.window_writer import check_content_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from weftline.exchange.transfer.bundle_format import AnyBundleEntry, BundleLine
    from weftline.records.model import Record

Restorable = Version | Message | StoredEvent | BundleSnapshot | BundleWindow | decode.WindowVersion
_NO_VERSION = (0, 0, False)
_COUNTERS = {
    Version: "versions",
    Message: "messages",
    StoredEvent: "events",
    BundleSnapshot: "snapshots",
    decode.WindowVersion: "versions",
    BundleWindow: "windows",
}
# Missing commits are filled in one by one, so their number is limited.
_MAX_MISSING_COMMITS = 100_000
# Content modes under which the content is the original text, unlike a summary.
_ORIGINAL_TEXT = frozenset({"inline", "ref"})


class WindowUse(NamedTuple):
    """What a window takes of its limits: the number of its newest event, or of all of them, and their bytes."""

    events: int = 0
    bytes: int = 0


@dataclass(slots=True)
class BundleReport:
    """What a bundle contains.

    ``record_lines`` maps the lines of records that stay records to the index of the last event about each.
    ``lost`` has the keys whose newest version is such a record, so that it cannot be restored: incarnation and number.
    ``labels`` has the lines in which a scan found something; ``is_attack``: more than a harmless bundle of this size
    would show by chance. ``windows`` has what each agent's window takes of its limits.
    """

    header: BundleHeader
    session: BundleSession | None = None
    digest: str = ""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTERS.values(), 0))
    last_message: int = 0
    record_lines: dict[int, int | None] = field(default_factory=dict)
    lost: dict[str, tuple[int, int]] = field(default_factory=dict)
    session_line: int = 0
    labels: dict[int, TrustLabel] = field(default_factory=dict)
    is_attack: bool = False
    windows: dict[str, WindowUse] = field(default_factory=dict)

    @property
    def suspicious(self) -> int:
        """Return the number of entries that look like instructions to agents."""
        return sum(map(self.is_suspicious, self.labels))

    def is_suspicious(self, line: int) -> bool:
        label = self.labels.get(line)
        return label is not None and label.trust is Trust.SUSPICIOUS

    @property
    def session_id(self) -> str | None:
        return None if self.session is None else self.session.session_id


class EntryWithContent(msgspec.Struct, frozen=True):
    """An entry of a bundle with the content of the entry after it."""

    line: BundleLine
    content: bytes | None = None

    @property
    def entry(self) -> AnyBundleEntry:
        return self.line.entry

    @property
    def text(self) -> str | None:
        """Return the original text of an item, inline or from its content entry."""
        record = self.line.record
        if not isinstance(record, ContextItem) or record.content_mode not in _ORIGINAL_TEXT:
            return None
        if isinstance(record.content, str):
            return record.content
        try:
            return None if self.content is None else self.content.decode()
        except UnicodeDecodeError:
            return None


def validate_bundle(file: BinaryIO, expected_digest: str | None = None) -> BundleReport:
    """Check a bundle completely and return what it contains."""
    reader = open_bundle(file)
    report: BundleReport | None = None
    check: _OrderCheck | None = None
    for piece in entries_with_content(reader):
        entry = piece.entry
        if isinstance(entry, BundleHeader):
            report = BundleReport(entry)
        elif isinstance(entry, BundleSession) and report is not None:
            if entry.session_id != report.header.session_id or entry.session_id == ALL_SESSIONS:
                raise piece.line.damaged("the session is not that of the header")
            report.session, report.session_line = entry, piece.line.number
            check = _OrderCheck(report, entry.session_id)
        elif check is not None:
            check.note(piece)
    assert report is not None  # noqa: S101 - the reader rejects a bundle without a header
    assert reader.digest is not None  # noqa: S101 - or without a seal
    if expected_digest not in {None, reader.digest}:
        raise BundleDamaged(f"The digest of the bundle is {reader.digest}, not the expected one.", digest=reader.digest)
    report.digest = reader.digest
    if check is not None:
        check.finish(file)
    return report


def decode_entry(piece: EntryWithContent, header: BundleHeader, session_id: str) -> Restorable | None:
    """Decode an entry into the object to restore; None if it stays a record."""
    entry, record = piece.entry, piece.line.record
    if isinstance(entry, BundleSnapshot | BundleWindow):
        return entry if header.history or isinstance(entry, BundleWindow) else None
    if not isinstance(entry, BundleRecord) or entry.stored is not UNSET:
        return None
    if isinstance(record, ContextEvent) and record.session_id == session_id:
        return decode.decode_event(record, entry.readable_by)
    if not isinstance(record, ContextItem):
        return None
    version = decode.decode_board_version(record, piece.text, session_id)
    if version is not None and isinstance(entry.salt, str):
        return structs.replace(version, salt=bytes.fromhex(entry.salt))
    return (
        version
        or decode.decode_message(record, piece.text, session_id)
        or decode.decode_window_version(record, piece.text, session_id)
    )


def check_bundle(document: bytes) -> ValidationReport:
    """Check a bundle like any file of records: every record more strictly than an import does."""
    problems: list[Problem] = []
    reader = BundleReader(io.BytesIO(document))
    try:
        for line in reader:
            if isinstance(line.entry, BundleRecord):
                problems += _problems(line.number, line.entry)
    except BundleDamaged as damage:
        problems.append(Problem(damage.context["line"], "$", damage.context["problem"]))
    return ValidationReport(reader.records, problems)


def open_bundle(file: BinaryIO) -> BundleReader:
    """Return a reader at the start of the file."""
    file.seek(0)
    return BundleReader(file)


def entries_with_content(reader: BundleReader) -> Iterator[EntryWithContent]:
    """Yield entries, each with the content that follows it."""
    last: BundleLine | None = None
    for line in reader:
        if isinstance(line.entry, BundleContent) and last is not None:
            yield EntryWithContent(last, line.entry.bytes())
            last = None
            continue
        if last is not None:
            yield EntryWithContent(last)
        last = line
    if last is not None:
        yield EntryWithContent(last)


def _problems(number: int, entry: BundleRecord) -> Iterator[Problem]:
    try:
        check_record(bytes(entry.record), entry.type)
    except InvalidRecord as found:
        yield Problem(number, f"$.entry.record{found.path.removeprefix('$')}", found.reason)


@dataclass(slots=True)
class _LineOrder:
    """Checks the order of the versions and snapshots of a board or a window."""

    history: bool
    seq: int = 0
    missing: int = 0
    labels: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    numbers: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    values: set[bytes] = field(default_factory=set)

    def check(self, version: Version, piece: EntryWithContent) -> None:
        change = version.change
        number = (change.incarnation, change.version, change.act is not ChangeKind.WRITE)
        if version.seq != self.seq:
            self.changed.clear()
        if version.seq < self.seq or change.key in self.changed or number <= self.numbers.get(change.key, _NO_VERSION):
            raise piece.line.damaged("a version is out of order")
        self._advance_to(version.seq, version.seq - 1, piece)
        self.changed.add(change.key)
        self.numbers[change.key] = number

    def check_snapshot(self, snapshot: BundleSnapshot, piece: EntryWithContent) -> None:
        if snapshot.label in self.labels:
            raise piece.line.damaged("two snapshots have one label")
        self.labels.add(snapshot.label)
        self._advance_to(snapshot.seq, snapshot.seq, piece)

    def _advance_to(self, seq: int, missing_upto: int, piece: EntryWithContent) -> None:
        self.missing += max(0, missing_upto - self.seq)
        if self.history and self.missing > _MAX_MISSING_COMMITS:
            raise piece.line.damaged("too many commits are missing before this one")
        self.seq = max(seq, self.seq)


@dataclass(slots=True)
class _OrderCheck:
    """Checks the order of versions, messages and snapshots line by line, and fills the report."""

    report: BundleReport
    session_id: str
    lines: dict[str, _LineOrder] = field(default_factory=dict)
    windows: set[str] = field(default_factory=set)
    named: dict[tuple[str, str], int] = field(default_factory=dict)
    unrestorable: set[str] = field(default_factory=set)

    def note(self, piece: EntryWithContent) -> None:
        made = decode_entry(piece, self.report.header, self.session_id)
        match made:
            case Version():
                self._board.check(made, piece)
            case decode.WindowVersion():
                self._check_event(made, piece)
            case BundleWindow():
                self._check_window(made, piece)
            case Message():
                self._check_message(made.message_id, piece)
            case StoredEvent():
                self._note_event(made)
            case BundleSnapshot():
                self._board.check_snapshot(made, piece)
        if made is None or (isinstance(made, Version) and decode.lacks_value(made)):
            self._note_record(piece, made)
        else:
            self.report.counts[_COUNTERS[type(made)]] += 1

    def finish(self, file: BinaryIO) -> None:
        """Read the bundle again to find items that occur both as a record and as a restorable version."""
        numbers = {key: (incarnation, version) for key, (incarnation, version, _) in self._board.numbers.items()}
        self.report.lost = {key: lost for key, lost in self.report.lost.items() if lost > numbers.get(key, (0, 0))}
        seen: set[str] = set()
        for piece in entries_with_content(open_bundle(file)) if self.unrestorable else ():
            item = piece.line.record
            if not isinstance(item, ContextItem) or item.item_id not in self.unrestorable:
                continue
            if item.item_id in seen:
                raise piece.line.damaged("two items have one id")
            seen.add(item.item_id)

    def _line(self, line_id: str) -> _LineOrder:
        return self.lines.setdefault(line_id, _LineOrder(self.report.header.history))

    @property
    def _board(self) -> _LineOrder:
        return self._line(line_of(self.session_id))

    def _check_event(self, made: decode.WindowVersion, piece: EntryWithContent) -> None:
        line = self._line(made.line_id)
        line.check(made.version, piece)
        check_content_size(len((made.content or "").encode()))
        # A rollback writes values again that are stored once.
        value = made.version.change.blob_hash
        size = 0 if value in line.values else made.size
        line.values |= {value} if value else set()
        # Each event counts, also if several have one number.
        self._note_use(agent_of(made.line_id), max(made.number, len(line.numbers)), size)

    def _note_use(self, agent_id: str, events: int, size: int) -> None:
        before = self.report.windows.get(agent_id, WindowUse())
        self.report.windows[agent_id] = WindowUse(max(before.events, events), before.bytes + size)

    def _check_window(self, window: BundleWindow, piece: EntryWithContent) -> None:
        if window.agent_id in self.windows:
            raise piece.line.damaged("an agent has two windows")
        self.windows.add(window.agent_id)
        self._note_use(window.agent_id, window.last_number, 0)
        for checkpoint in window.checkpoints:
            self._line(window_line(self.session_id, window.agent_id)).check_snapshot(checkpoint, piece)

    def _check_message(self, message_id: int, piece: EntryWithContent) -> None:
        if message_id <= self.report.last_message:
            raise piece.line.damaged("a message is out of order")
        self.report.last_message = message_id

    def _note_event(self, recorded: StoredEvent) -> None:
        event = recorded.event
        line = self.named.get((str(event.data.get("record_type")), event.subject))
        if line is not None:
            self.report.record_lines[line] = self.report.counts["events"]

    def _note_record(self, piece: EntryWithContent, made: Restorable | None) -> None:
        entry, record = piece.entry, piece.line.record
        if not isinstance(entry, BundleRecord) or record is None:
            return
        if entry.stored is UNSET and _is_made_by_import(record):
            return
        self.report.record_lines[piece.line.number] = None
        self.named.setdefault((record.type, record.id), piece.line.number)
        if isinstance(record, ContextItem) and made is None:
            self._note_unrestorable(record.item_id, piece, stored=entry.stored is not UNSET)

    def _note_unrestorable(self, item_id: str, piece: EntryWithContent, *, stored: bool) -> None:
        """Note an item of the session that cannot be restored: its number is not used again."""
        version, message = VersionId.parse(item_id), MessageItemId.parse(item_id)
        if version is not None and version.line_id == line_of(self.session_id):
            self.unrestorable.add(item_id)
            number = (version.incarnation, version.version)
            self.report.lost[version.key] = max(number, self.report.lost.get(version.key, number))
        elif message is not None and message.session_id == self.session_id:
            if not stored:
                self._check_message(message.message_id, piece)
                return
            self.unrestorable.add(item_id)
            self.report.last_message = max(message.message_id, self.report.last_message)


def _is_made_by_import(record: Record) -> bool:
    """Tell whether an imported session brings this record along: its surface, and the sources of its items."""
    is_surface = record.type == "context_surface" and ReceiptOrigin.parse(record.id) is None
    return is_surface or record.type == "context_source_ref"
