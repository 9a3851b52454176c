"""A session that comes with a bundle, made again: its board commit by commit, its messages, its events, its records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from weft.capabilities.board.model import Entry
from weft.capabilities.board.store import EntryStore
from weft.capabilities.events.model import EventStore, PastEvents, Wanted
from weft.capabilities.exchange import rebuilding
from weft.capabilities.exchange.bundles import RecordEntry, Snapshot
from weft.capabilities.exchange.surveying import pieces, read
from weft.capabilities.history.model import SYSTEM, Act, Author, Commit, Head, Tag, Version
from weft.capabilities.history.store import LineStore
from weft.capabilities.messages.store import MessageStore
from weft.capabilities.records.model import ContextEvent, ContextItem
from weft.capabilities.records.recording import RecordExists, items_of, status_of
from weft.capabilities.records.refs import Link
from weft.capabilities.records.store import Kept, RecordStore
from weft.capabilities.sessions.model import line_of
from weft.capabilities.sessions.store import SessionStore
from weft.kernel.clock import Clock, from_micros, to_micros
from weft.kernel.events import Event, NewEvent, Outbox, Recorded
from weft.kernel.identity import ANYONE, Actor

if TYPE_CHECKING:
    from typing import BinaryIO

    from weft.capabilities.exchange.surveying import Piece, Survey
    from weft.capabilities.messages.model import Message
    from weft.capabilities.records.model import Record
    from weft.capabilities.sessions.model import Session

IMPORTED = "session.imported"
# So many commits may be missing before it takes too long to go past them.
_MOST_MISSING = 100_000
_MOST_TOLD = 1_000
_NOT_HERE = "not in the bundle"
_UNCLASSED = "record.added"
_encode = msgspec.json.Encoder().encode


class Stores(msgspec.Struct, frozen=True):
    """Everything that a session is made of, as the one who imports it may change it."""

    actor: Actor
    sessions: SessionStore
    lines: LineStore
    entries: EntryStore
    messages: MessageStore
    records: RecordStore
    events: EventStore
    past: PastEvents
    outbox: Outbox
    clock: Clock


@dataclass(slots=True)
class Reopening:
    """A bundle of a session, on its way to become that session."""

    needs: Stores
    found: Survey
    session: Session
    board: _Board = field(init=False)
    counts: dict[str, int] = field(default_factory=dict)

    async def take(self, file: BinaryIO) -> dict[str, int]:
        """Make everything again and return how much of what."""
        needs, session = self.needs, self.session
        await needs.lines.create(line_of(session.session_id))
        self.board = _Board(needs, session.session_id, Head.of_new_line(line_of(session.session_id)), self.found)
        begun_at = await needs.outbox.last_seq()
        for piece in pieces(read(file)):
            await self._put(piece)
        await self.board.finish(is_open=session.archived_at is None)
        # Behind the events, because a record knows the one that last told of it.
        for piece in pieces(read(file)):
            if self._is_kept(piece):
                await self._keep(piece, begun_at)
        if session.archived_at is not None:
            await needs.sessions.archive(session.session_id, session.archived_at)
        await self._announce()
        return self.counts

    async def _put(self, piece: Piece) -> None:
        """Put a version, a message, an event or a snapshot where it was."""
        made = self._made_of(piece)
        if made is None:
            return
        if isinstance(made, rebuilding.BoardVersion):
            await self.board.add(made.version, piece)
            self._count("versions")
        elif isinstance(made, Recorded):
            await self.needs.past.republish(made)
            self._count("events")
        elif isinstance(made, Snapshot):
            await self.board.name(made, piece)
            self._count("snapshots")
        else:
            await self.board.say(made, piece)
            self._count("messages")
        await self._redact(piece)

    async def _redact(self, piece: Piece) -> None:
        item = piece.line.record
        if isinstance(item, ContextItem):
            redacted = rebuilding.redaction(item, self.session.session_id, to_micros(self.needs.clock.now()))
            if redacted is not None:
                await self.needs.records.redact(redacted)

    def _made_of(self, piece: Piece) -> rebuilding.BoardVersion | Message | Recorded | Snapshot | None:
        """Return what an entry was before it was a record; None if it is kept as one, or not at all."""
        entry, record = piece.entry, piece.line.record
        if isinstance(entry, Snapshot):
            return entry if self.found.header.history else None
        if not isinstance(entry, RecordEntry) or entry.stored is not UNSET:
            return None
        session_id = self.session.session_id
        if isinstance(record, ContextEvent) and record.session_id == session_id:
            return rebuilding.event(record, self.session.audience, entry.readable_by)
        if not isinstance(record, ContextItem):
            return None
        version = rebuilding.board_version(record, piece.text, session_id)
        if version is not None:
            gone = version.is_silent or version.version.change.key in self.found.silent
            return None if gone else version
        return rebuilding.message(record, piece.text, session_id)

    def _is_kept(self, piece: Piece) -> bool:
        """Tell whether an entry is kept as a record: all that were, and what nothing else can be made of."""
        entry, record = piece.entry, piece.line.record
        if not isinstance(entry, RecordEntry) or record is None:
            return False
        of_session = entry.stored is UNSET and record.type in {"context_surface", "context_source_ref"}
        return not of_session and self._made_of(piece) is None

    async def _keep(self, piece: Piece, begun_at: int) -> None:
        entry, record = piece.entry, piece.line.record
        assert isinstance(entry, RecordEntry)  # noqa: S101 - what is kept is a record
        assert record is not None  # noqa: S101 - likewise
        if await is_known(self.needs.records, record):
            self._count("skipped")
            return
        now = to_micros(self.needs.clock.now())
        stored = None if entry.stored is UNSET else entry.stored
        by = stored.by if stored else self.needs.actor.participant
        at = to_micros(stored.at) if stored else now
        kept = Kept(
            type=record.type,
            record_id=record.id,
            session_id=self.session.session_id,
            status=status_of(record),
            recorded_by=by,
            recorded_at=at,
            changed_at=to_micros(stored.changed_at) if stored else now,
            seq=await self._told_by(record, entry.readable_by, by, at, begun_at),
            readable_by=entry.readable_by,
            body=_encode(record),
        )
        await self.needs.records.add(kept, items_of(record))
        await keep_content(self.needs.records, self.session.session_id, piece)
        self._count("records")

    async def _told_by(self, record: Record, readable_by: tuple[str, ...], by: str, at: int, begun_at: int) -> int:
        """Return the event that last told of a record; one that no event came with is told of now."""
        wanted = Wanted(session_id=self.session.session_id, subject=record.id)
        told = await self.needs.events.find(wanted, begun_at, _MOST_TOLD)
        known = [recorded for recorded in told if recorded.event.data.get("record_type") == record.type]
        if known:
            return known[-1].event.seq
        told_now = Event(
            seq=0,
            type=_UNCLASSED,
            session_id=self.session.session_id,
            subject=record.id,
            actor=by,
            at=from_micros(at),
            data={"record_type": record.type},
        )
        await self.needs.past.republish(Recorded(told_now, self.session.audience, readable_by))
        return await self.needs.outbox.last_seq()

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

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


@dataclass(slots=True)
class _Board:
    """A board and a transcript that are made again, commit by commit and message by message."""

    needs: Stores
    session_id: str
    head: Head
    found: Survey
    standing: dict[str, Entry] = field(default_factory=dict)
    weight: int = 0
    _commit: dict[str, Version] = field(default_factory=dict)
    _last_seq: int = 0
    _last_message: int = 0
    _last_sent_at: int = 0

    async def add(self, version: Version, piece: Piece) -> None:
        """Add a change; those of one commit come together."""
        if version.seq < self._last_seq or (version.change.key in self._commit and version.seq == self._last_seq):
            raise piece.line.damaged("a version is out of order")
        if version.seq != self._last_seq:
            await self._finish_commit()
            await self._go_past(version, piece)
            self._last_seq = version.seq
        self._commit[version.change.key] = version

    async def say(self, message: Message, piece: Piece) -> None:
        if message.message_id <= self._last_message:
            raise piece.line.damaged("a message is out of order")
        self._last_message, self._last_sent_at = message.message_id, max(message.sent_at, self._last_sent_at)
        await self.needs.messages.add(self.session_id, msgspec.structs.replace(message, sent_at=self._last_sent_at))

    async def name(self, snapshot: Snapshot, piece: Piece) -> None:
        await self._finish_commit()
        tag = Tag(snapshot.label, snapshot.seq, snapshot.created_by, to_micros(snapshot.created_at), snapshot.automatic)
        if tag.seq > self.head.seq:
            raise piece.line.damaged("a snapshot is of a version that is not there")
        if not await self.needs.lines.tag(self.head.line_id, tag):
            raise piece.line.damaged("two snapshots have one label")

    async def finish(self, *, is_open: bool) -> None:
        """Put what stands where it is read, and have it end when its time is over."""
        await self._finish_commit()
        for entry in self.standing.values():
            await self.needs.entries.put(self.session_id, entry)
        ends = [entry.expires_at for entry in self.standing.values() if entry.expires_at is not None]
        await self.needs.lines.set_next_expiry(self.head.line_id, min(ends, default=None) if is_open else None)

    async def _go_past(self, version: Version, piece: Piece) -> None:
        """Leave room for commits that did not come along, so that every later one has the number it had."""
        if not self.found.header.history:
            return
        missing = version.seq - self.head.seq - 1
        if missing > _MOST_MISSING:
            raise piece.line.damaged("too many versions are missing before this one")
        for _ in range(missing):
            await self._append(SYSTEM, version.committed_at, _NOT_HERE, None, ())

    async def _finish_commit(self) -> None:
        versions = tuple(self._commit.values())
        if not versions:
            return
        self._commit = {}
        for version in versions:
            await self._stand(version)
        first = versions[0]
        author = Author(first.author, first.principal_id)
        await self._append(author, first.committed_at, first.reason, first.step, versions)

    async def _stand(self, version: Version) -> None:
        change, meta = version.change, version.change.meta
        before = self.standing.pop(change.key, None)
        self.weight -= before.tokens if before else 0
        if change.act is not Act.WRITE or change.blob_hash is None or version.value is None:
            return
        self.weight += meta.tokens
        await self.needs.lines.put_blob(change.blob_hash, version.value)
        self.standing[change.key] = Entry(
            key=change.key,
            life=change.life,
            version=change.version,
            blob_hash=change.blob_hash,
            tokens=meta.tokens,
            written_by=version.author,
            written_at=version.committed_at,
            expires_at=meta.expires_at,
            readable_by=meta.readable_by or ANYONE,
            writable_by=meta.writable_by or ANYONE,
        )

    async def _append(
        self, author: Author, at: int, reason: str, step: str | None, versions: tuple[Version, ...]
    ) -> None:
        changes = tuple(version.change for version in versions)
        commit = Commit(self.head.line_id, self.head.seq + 1, author, at, reason, step, changes)
        self.head = await self.needs.lines.append(self.head, commit, weight=self.weight, next_expiry_at=None)


async def is_known(records: RecordStore, record: Record) -> bool:
    """Tell whether a record is here, word for word; refuse one that is here in other words."""
    known = await records.find(record.type, record.id)
    if known is None:
        return False
    if known.body == _encode(record):
        return True
    raise RecordExists(
        f"There is a {record.type} '{record.id[:100]}' already, and it says something else.",
        resource_id=record.id[:100],
    )


async def keep_content(records: RecordStore, session_id: str | None, piece: Piece) -> None:
    item = piece.line.record
    if piece.content is None or not isinstance(item, ContextItem) or not isinstance(item.content_ref, Link):
        return
    digest = bytes.fromhex(str(item.content_ref.digest).removeprefix("sha256:"))
    await records.put_content(session_id, digest, piece.content)
