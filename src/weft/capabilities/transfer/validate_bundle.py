"""Looking through a bundle: checked to its last byte, and known for what it is, before anything is written."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from weft.capabilities.history.model import ChangeKind
from weft.capabilities.messages.model import Message
from weft.capabilities.records.model import ContextEvent, ContextItem
from weft.capabilities.records.record_ids import MessageItemId, VersionId
from weft.capabilities.records.validation import Problem, ValidationReport, check_record
from weft.capabilities.records.validation_errors import InvalidRecord
from weft.capabilities.sessions.model import ALL_SESSIONS, line_of
from weft.capabilities.transfer import decode
from weft.capabilities.transfer.bundle_format import (
    BundleContent,
    BundleDamaged,
    BundleHeader,
    BundleReader,
    BundleRecord,
    BundleSession,
    BundleSnapshot,
)
from weft.kernel.events import StoredEvent
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from weft.capabilities.transfer.bundle_format import AnyBundleEntry, BundleLine

Restorable = decode.BoardVersion | Message | StoredEvent | BundleSnapshot
_NO_VERSION = (0, 0, False)
_MADE = ("versions", "messages", "events", "snapshots")
# So many commits may be missing before it takes too long to go past them.
_MOST_MISSING = 100_000
# How an item is told that says its own words; a summary, for one, says others.
_IN_ITS_OWN_WORDS = frozenset({"inline", "ref"})


@dataclass(slots=True)
class BundleReport:
    """What a bundle says of itself, known before anything is written.

    ``kept`` are the lines of records that stay records, each with the event that tells of it last, counted from 0.
    ``lost`` are keys whose newest version is among those and has no place in history: its life and number.
    """

    header: BundleHeader
    session: BundleSession | None = None
    digest: str = ""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_MADE, 0))
    last_message: int = 0
    kept: dict[int, int | None] = field(default_factory=dict)
    lost: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def session_id(self) -> str | None:
        return None if self.session is None else self.session.session_id


class EntryWithContent(msgspec.Struct, frozen=True):
    """An entry of a bundle with the content that belongs to it."""

    line: BundleLine
    content: bytes | None = None

    @property
    def entry(self) -> AnyBundleEntry:
        return self.line.entry

    @property
    def text(self) -> str | None:
        """Return what an item says in its own words: in itself or behind it."""
        record = self.line.record
        if not isinstance(record, ContextItem) or record.content_mode not in _IN_ITS_OWN_WORDS:
            return None
        if isinstance(record.content, str):
            return record.content
        try:
            return None if self.content is None else self.content.decode()
        except UnicodeDecodeError:
            return None


def validate_bundle(file: BinaryIO, expected_digest: str | None = None) -> BundleReport:
    """Check a whole bundle and return what it says of itself."""
    reader = open_bundle(file)
    found: BundleReport | None = None
    past: _Past | None = None
    for piece in entries_with_content(reader):
        entry = piece.entry
        if isinstance(entry, BundleHeader):
            found = BundleReport(entry)
        elif isinstance(entry, BundleSession) and found is not None:
            if entry.session_id != found.header.session_id or entry.session_id == ALL_SESSIONS:
                raise piece.line.damaged("the session is another than the bundle's")
            found.session = entry
            past = _Past(found, entry.session_id)
        elif past is not None:
            past.note(piece)
    assert found is not None  # noqa: S101 - a bundle without a header is refused by the reader
    assert reader.digest is not None  # noqa: S101 - likewise without a seal
    if expected_digest not in {None, reader.digest}:
        raise BundleDamaged(
            f"This is another bundle than the one you expect: its digest is {reader.digest}.", digest=reader.digest
        )
    found.digest = reader.digest
    if past is not None:
        past.finish(file)
    return found


def decode_entry(
    piece: EntryWithContent, header: BundleHeader, session_id: str, audience: tuple[str, ...] = ANYONE
) -> Restorable | None:
    """Return what an entry was before it was a record; None if it was one, or if nothing else can be made of it."""
    entry, record = piece.entry, piece.line.record
    if isinstance(entry, BundleSnapshot):
        return entry if header.history else None
    if not isinstance(entry, BundleRecord) or entry.stored is not UNSET:
        return None
    if isinstance(record, ContextEvent) and record.session_id == session_id:
        return decode.decode_event(record, audience, entry.readable_by)
    if not isinstance(record, ContextItem):
        return None
    version = decode.decode_board_version(record, piece.text, session_id)
    return version or decode.decode_message(record, piece.text, session_id)


def check_bundle(document: bytes) -> ValidationReport:
    """Check a bundle as any file of records is checked: every record more strictly than an import does."""
    problems: list[Problem] = []
    reader = BundleReader(io.BytesIO(document))
    try:
        for line in reader:
            if isinstance(line.entry, BundleRecord):
                problems += _misfits(line.number, line.entry)
    except BundleDamaged as damage:
        problems.append(Problem(damage.context["line"], "$", damage.context["problem"]))
    return ValidationReport(reader.records, problems)


def open_bundle(file: BinaryIO) -> BundleReader:
    """Read a bundle from its beginning, as often as need be."""
    file.seek(0)
    return BundleReader(file)


def entries_with_content(reader: BundleReader) -> Iterator[EntryWithContent]:
    """Yield entries, each with the content right behind it."""
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


def _misfits(number: int, entry: BundleRecord) -> Iterator[Problem]:
    try:
        check_record(bytes(entry.record), entry.type)
    except InvalidRecord as found:
        yield Problem(number, f"$.entry.record{found.path.removeprefix('$')}", found.reason)


@dataclass(slots=True)
class _Past:
    """What the lines of a bundle come to, one after the other; refused where that cannot have been."""

    found: BundleReport
    session_id: str
    seq: int = 0
    missing: int = 0
    labels: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    numbers: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    named: dict[tuple[str, str], int] = field(default_factory=dict)
    unplaced: set[str] = field(default_factory=set)

    def note(self, piece: EntryWithContent) -> None:
        made = decode_entry(piece, self.found.header, self.session_id)
        match made:
            case decode.BoardVersion():
                self._follow_board(made, piece)
            case Message():
                self._follow_transcript(made.message_id, piece)
            case StoredEvent():
                self._tell(made)
            case BundleSnapshot():
                self._name(made, piece)
        if made is None or _is_silent(made):
            self._keep(piece, made)
        else:
            self.found.counts[_sort(made)] += 1

    def finish(self, file: BinaryIO) -> None:
        """Look once more for what is there twice, in its place and out of it."""
        numbers = {key: (life, version) for key, (life, version, _) in self.numbers.items()}
        self.found.lost = {key: lost for key, lost in self.found.lost.items() if lost > numbers.get(key, (0, 0))}
        seen: set[str] = set()
        for piece in entries_with_content(open_bundle(file)) if self.unplaced else ():
            item = piece.line.record
            if not isinstance(item, ContextItem) or item.item_id not in self.unplaced:
                continue
            if item.item_id in seen:
                raise piece.line.damaged("two items have one id")
            seen.add(item.item_id)

    def _follow_board(self, made: decode.BoardVersion, piece: EntryWithContent) -> None:
        version, change = made.version, made.version.change
        number = (change.life, change.version, change.act is not ChangeKind.WRITE)
        if version.seq != self.seq:
            self.changed.clear()
        if version.seq < self.seq or change.key in self.changed or number <= self.numbers.get(change.key, _NO_VERSION):
            raise piece.line.damaged("a version is out of order")
        self._go_to(version.seq, version.seq - 1, piece)
        self.changed.add(change.key)
        self.numbers[change.key] = number

    def _go_to(self, seq: int, missing_upto: int, piece: EntryWithContent) -> None:
        self.missing += max(0, missing_upto - self.seq)
        if self.found.header.history and self.missing > _MOST_MISSING:
            raise piece.line.damaged("too many versions are missing before this one")
        self.seq = max(seq, self.seq)

    def _follow_transcript(self, message_id: int, piece: EntryWithContent) -> None:
        if message_id <= self.found.last_message:
            raise piece.line.damaged("a message is out of order")
        self.found.last_message = message_id

    def _tell(self, recorded: StoredEvent) -> None:
        event = recorded.event
        line = self.named.get((str(event.data.get("record_type")), event.subject))
        if line is not None:
            self.found.kept[line] = self.found.counts["events"]

    def _name(self, snapshot: BundleSnapshot, piece: EntryWithContent) -> None:
        if snapshot.label in self.labels:
            raise piece.line.damaged("two snapshots have one label")
        self.labels.add(snapshot.label)
        self._go_to(snapshot.seq, snapshot.seq, piece)

    def _keep(self, piece: EntryWithContent, made: Restorable | None) -> None:
        entry, record = piece.entry, piece.line.record
        if not isinstance(entry, BundleRecord) or record is None:
            return
        if entry.stored is UNSET and record.type in {"context_surface", "context_source_ref"}:
            return
        self.found.kept[piece.line.number] = None
        self.named.setdefault((record.type, record.id), piece.line.number)
        if isinstance(record, ContextItem) and made is None:
            self._place(record.item_id, piece, stored=entry.stored is not UNSET)

    def _place(self, item_id: str, piece: EntryWithContent, *, stored: bool) -> None:
        """Note an item of the session of which nothing can be made: its number is never given out again."""
        version, message = VersionId.parse(item_id), MessageItemId.parse(item_id)
        if version is not None and version.line_id == line_of(self.session_id):
            self.unplaced.add(item_id)
            number = (version.life, version.version)
            self.found.lost[version.key] = max(number, self.found.lost.get(version.key, number))
        elif message is not None and message.session_id == self.session_id:
            if not stored:
                self._follow_transcript(message.message_id, piece)
                return
            self.unplaced.add(item_id)
            self.found.last_message = max(message.message_id, self.found.last_message)


def _is_silent(made: Restorable) -> bool:
    return isinstance(made, decode.BoardVersion) and made.is_silent


def _sort(made: Restorable) -> str:
    match made:
        case decode.BoardVersion():
            return "versions"
        case Message():
            return "messages"
        case StoredEvent():
            return "events"
        case BundleSnapshot():
            return "snapshots"
