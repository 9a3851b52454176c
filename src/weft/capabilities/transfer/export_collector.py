"""What an export is made of: read a page at a time as its caller may see it, written as the policy lets it leave."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from weft.capabilities.board.read_acl import Saying
from weft.capabilities.board.version_acl import VersionAcl
from weft.capabilities.events.model import EventFilter, EventQuery, EventStore
from weft.capabilities.history.composite_lines import entry_at
from weft.capabilities.history.model import LATEST
from weft.capabilities.history.service import History
from weft.capabilities.history.store import ChangeRef
from weft.capabilities.messages.model import TranscriptRange
from weft.capabilities.messages.transcript import Transcripts
from weft.capabilities.record_log.engine_items import (
    EngineItem,
    message_item,
    session_surface,
    source_record,
    sources_in,
    version_item,
)
from weft.capabilities.record_log.lookup import RecordFinder, numbered_here
from weft.capabilities.record_log.model import stored_content
from weft.capabilities.record_log.redacted_items import without_content
from weft.capabilities.record_log.redacted_records import redact_quotes
from weft.capabilities.records.event_classes import to_context_event
from weft.capabilities.records.model import RECORD_TYPES, ContextItem, Record
from weft.capabilities.records.record_ids import (
    MessageItemId,
    PullOrigin,
    StoredRecordId,
    VersionOrigin,
    item_of_event,
    parse_item_id,
    records_of_event,
)
from weft.capabilities.records.recorder import referenced_item_ids
from weft.capabilities.records.store import RecordStore, StoredRecord
from weft.capabilities.sessions.model import line_of, session_of
from weft.capabilities.transfer.bundle_format import BundleContent, BundleSnapshot, StoredInfo
from weft.kernel.clock import from_micros
from weft.kernel.cooperative import Cooperative
from weft.kernel.errors import Forbidden, NotFound
from weft.kernel.identity import ANYONE, PRINCIPAL, Actor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence
    from datetime import datetime

    from weft.capabilities.history.line_backend import OpenLine
    from weft.capabilities.history.line_ids import Review
    from weft.capabilities.history.model import Version
    from weft.capabilities.messages.model import Message
    from weft.capabilities.records.record_ids import RecordRef
    from weft.capabilities.records.refs import Maybe
    from weft.capabilities.sessions.model import Session
    from weft.capabilities.transfer.bundle_format import AnyBundleEntry
    from weft.capabilities.transfer.policy_filter import AppliedPolicy
    from weft.kernel.events import StoredEvent

# So much is in memory at once, however much there is.
PAGE = 500
# So many items are done in one go, and so much text takes as long as an item.
_AT_A_STRETCH = 50
_LIKE_AN_ITEM = 2_048
_BOARD = "board:"
# Events of what an agent has for itself; only itself is told of them.
_OF_MEMORY = ("context.pulled", "context.pushed", "memory.", "agent.")
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in RECORD_TYPES.items()}


class ExportSink(Protocol):
    """Where an export is written."""

    records: int
    bytes: int

    def add(self, entry: AnyBundleEntry) -> None: ...

    def add_record(
        self, record: Record, readable_by: tuple[str, ...] = ANYONE, stored: Maybe[StoredInfo] = UNSET
    ) -> None: ...

    def seal(self) -> str:
        """End what was written and return its digest."""
        ...


class ExportSources(msgspec.Struct, frozen=True):
    """Everything that an export is read from, as its caller may see it."""

    actor: Actor
    timelines: History
    transcripts: Transcripts
    events: EventStore
    records: RecordStore
    finder: RecordFinder
    turns: Cooperative


@dataclass(slots=True)
class EventSubjects:
    """What events are about: versions of keys and messages, by name, and stored records."""

    versions: dict[str, VersionOrigin] = field(default_factory=dict)
    messages: dict[str, MessageItemId] = field(default_factory=dict)
    stored: dict[tuple[str, str], None] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        return {version.name.key for version in self.versions.values()}

    def add(self, recorded: StoredEvent) -> None:
        for named in records_of_event(recorded):
            self._note(named)

    def add_item(self, item_id: str) -> None:
        self._note(parse_item_id(item_id))

    def _note(self, named: RecordRef) -> None:
        origin = named.origin
        if isinstance(origin, VersionOrigin) and origin.name.line_id.startswith(_BOARD):
            self.versions.setdefault(named.id, origin)
        elif isinstance(origin, MessageItemId):
            self.messages.setdefault(named.id, origin)
        elif isinstance(origin, StoredRecordId):
            self.stored.setdefault((origin.type, origin.record_id))


class ExportItem(NamedTuple):
    """An item on its way out: all who may read it here and, if it is kept as a record, by whom and when it was made."""

    item: EngineItem
    readable_by: tuple[str, ...] = ANYONE
    stored: Maybe[StoredInfo] = UNSET


class ExportedItem(NamedTuple):
    """An item that left, without what it said."""

    item_id: str
    kind: str
    tokens: Maybe[int]
    is_open: bool

    @classmethod
    def of(cls, item: ContextItem, readable_by: tuple[str, ...]) -> ExportedItem:
        is_open = item.sensitivity == "internal" and readable_by == ANYONE
        return cls(item.item_id, item.context_kind, item.token_estimate, is_open)


@dataclass(slots=True)
class ExportCollector:
    """One export under way. ``given`` are the items that left, where that is to be remembered."""

    sources: ExportSources
    applied: AppliedPolicy
    sink: ExportSink
    session: Session | None
    given: list[ExportedItem] = field(default_factory=list)
    remember: bool = False
    rules: VersionAcl = field(init=False)
    worked: int = 0

    def __post_init__(self) -> None:
        self.rules = VersionAcl(self.sources.actor, self.sources.timelines.lines)

    async def surface(self) -> None:
        """Write the session as the surface it is, and where what it holds comes from."""
        if self.session is None:
            return
        self._write(session_surface(self.session))
        for name in sources_in(self.session.session_id):
            self._write(source_record(name))

    async def board(self, session_id: str) -> None:
        """Write every version of the board and of its branches, and every removal."""
        board = line_of(session_id)
        branches = await self.sources.timelines.lines.branches(board)
        for line_id in (board, *(branch.head.line_id for branch in branches)):
            await self.sources.timelines.to_read(line_id)
            after = 0
            while page := await self.sources.timelines.lines.changes_behind(line_id, after, PAGE):
                after = page[-1].seq
                await self._versions(line_id, page)

    async def standing(self, session_id: str, keys: Collection[str] | None = None) -> None:
        """Write what the board says now: all of it, or only of some keys."""
        timelines = self.sources.timelines
        line_id = line_of(session_id)
        await timelines.to_read(line_id)
        present = await timelines.lines.state_at(line_id, LATEST)
        live = [
            version
            for version in present
            if (version.change.meta.expires_at or LATEST) > timelines.now
            and (keys is None or version.change.key in keys)
        ]
        await self._versions(line_id, live)

    async def messages(self, session_id: str) -> None:
        transcript = await self.sources.transcripts.to_read(session_id)
        after, more = 0, True
        while more:
            page = await transcript.page(TranscriptRange(after=after, limit=PAGE))
            await self._messages(session_id, page.messages)
            after, more = page.messages[-1].message_id if page.messages else 0, page.has_more

    async def snapshots(self, session_id: str) -> list[BundleSnapshot]:
        """Return the snapshots of a session, which stand behind all records."""
        return [
            BundleSnapshot(
                label=self.applied.name(tag.label),
                seq=tag.seq,
                created_by=tag.created_by,
                created_at=from_micros(tag.created_at),
                automatic=tag.automatic,
            )
            for tag in await self.sources.timelines.lines.tags(line_of(session_id))
        ]

    async def records(self, session_id: str) -> None:
        """Write the stored records of a session."""
        after = 0
        while page := await self.sources.records.of_session(session_id, after, PAGE):
            after = page[-1].seq
            await self.stored(page)

    def add_made(self, record: Record, readable_by: tuple[str, ...], at: datetime) -> None:
        """Write a record that the export itself makes."""
        self._write(record, readable_by, StoredInfo(self.sources.actor.participant, at, at))

    async def events(self, wanted: EventQuery) -> None:
        """Write events, each page behind what they tell of an agent's own memory: nothing else names that."""
        source = await self.sources.events.source()
        async for page in self.told(wanted):
            await self._of_memory(page)
            for recorded in page:
                add_event(recorded, source, self.applied, self.sink)
                await self._give_way()

    async def told(self, wanted: EventQuery) -> AsyncIterator[Sequence[StoredEvent]]:
        """Yield the events that the caller may be told of, a page at a time."""
        interest, after = EventFilter(wanted.session_id), 0
        while page := await self.sources.events.find(wanted, after, PAGE):
            after = page[-1].event.seq
            yield await self._still_open([each for each in page if interest.covers(each, self.sources.actor)])

    async def named(self, wanted: EventQuery) -> EventSubjects:
        """Return what events are about, with what stored records among it name."""
        names = EventSubjects()
        async for page in self.told(wanted):
            for recorded in page:
                names.add(recorded)
        return names

    async def about(self, names: EventSubjects) -> None:
        """Write what events are about: items, stored records, and the items and sources which those name."""
        first = await self.kept(names)
        for kept in first:
            for item_id in referenced_item_ids(_record(kept)):
                names.add_item(item_id)
        for source_id in _sources_of(await self.kept(names)):
            names.stored.setdefault(("context_source_ref", source_id))
        await self._named_versions([at for at in names.versions.values() if self._is_here(session_of(at.name.line_id))])
        await self.named_messages([name for name in names.messages.values() if self._is_here(name.session_id)])
        await self.stored(await self.kept(names))

    async def review(self, review: Review) -> None:
        """Write what each side of a merge says of every key that they are in conflict about."""
        moments = (
            (review.base_line, review.base_seq),
            (review.line_id, review.ours_seq),
            (review.source_line, review.theirs_seq),
        )
        for line_id, seq in moments:
            line = await self._opened(line_id)
            if line is None:
                continue
            lines = self.sources.timelines.lines
            sides = [await entry_at(lines, line_id, sides.key, seq) for sides in review.conflicts]
            for version, readers in await self._seen(line, [version for version in sides if version is not None]):
                home = (await lines.past(line_id, version.seq))[0].line_id
                await self.items([ExportItem(version_item(home, version), readers)])

    async def items(self, items: Sequence[ExportItem]) -> None:
        """Write items as far as they may leave, each with what it says behind it."""
        redactions = await self.sources.records.redactions([each.item.record.item_id for each in items])
        for item, readable_by, stored in items:
            await self._give_way(len(item.text or ""))
            leaving = self.applied.item(item, redactions.get(item.record.item_id), readable_by)
            if leaving is None:
                continue
            self.sink.add_record(leaving.record, readable_by, stored)
            if leaving.record.content is UNSET and leaving.text is not None:
                self.sink.add(BundleContent.of(leaving.text.encode()))
            if self.remember:
                self.given.append(ExportedItem.of(leaving.record, readable_by))

    async def stored(self, kept: Iterable[StoredRecord]) -> None:
        """Write stored records that the caller may read, with nothing in them of what was redacted since."""
        for each in await redact_quotes([each for each in kept if self._readable(each)], self.sources.records):
            record = _record(each)
            made = StoredInfo(each.recorded_by, from_micros(each.recorded_at), from_micros(each.changed_at))
            if isinstance(record, ContextItem):
                await self.items(
                    [ExportItem(EngineItem(record, await self._said(each, record)), each.readable_by, made)]
                )
            else:
                self._write(record, each.readable_by, made)

    async def _versions(self, line_id: str, versions: Sequence[Version]) -> None:
        # Of what did not come along with an import, a record says what is known.
        here = [version for version in versions if not version.change.meta.left_behind]
        seen = await self.rules.seen(line_id, here)
        seen.sort(key=lambda each: (each[0].seq, each[0].change.key))
        await self.items([ExportItem(version_item(line_id, version), readers) for version, readers in seen])

    async def _seen(self, line: OpenLine, versions: Sequence[Version]) -> list[tuple[Version, tuple[str, ...]]]:
        """Return what the caller may read of a line of any sort; but for a board, lines are for their owners alone."""
        line_id = line.head.line_id
        if line_id.startswith(_BOARD):
            return await self.rules.seen(line_id, versions)
        own = (f"{PRINCIPAL}{self.sources.actor.principal_id}",)
        return [(version, own) for version in await line.visible(versions)]

    async def _still_open(self, told: Sequence[StoredEvent]) -> list[StoredEvent]:
        """Leave out events of keys that were closed to the caller since."""
        by_line: dict[str, list[tuple[int, Saying]]] = defaultdict(list)
        for recorded in told:
            about = item_of_event(recorded)
            if isinstance(about, VersionOrigin) and about.name.line_id.startswith(_BOARD):
                saying = Saying(about.name.key, about.name.life, about.commit or 0)
                by_line[about.name.line_id].append((recorded.event.seq, saying))
        closed: set[int] = set()
        for line_id, said in by_line.items():
            known = await self.rules.may_know(line_id, [saying for _, saying in said])
            closed |= {seq for (seq, _), is_open in zip(said, known, strict=True) if not is_open}
        return [recorded for recorded in told if recorded.event.seq not in closed]

    async def _of_memory(self, page: Sequence[StoredEvent]) -> None:
        """Write what events tell of an agent's own memory: what it took into the session, and that it noted something.

        What it noted never leaves, not even with itself.
        """
        told = [recorded for recorded in page if recorded.event.type.startswith(_OF_MEMORY)]
        if not told:
            return
        look = await self.sources.finder.look(None if self.session is None else self.session.session_id)
        named = [
            (each, recorded.readable_by)
            for recorded, of_event in zip(told, await look.records_of(told, events=False), strict=True)
            for each in of_event
            if isinstance(each.origin, PullOrigin | VersionOrigin)
        ]
        for (each, readers), found in zip(named, await look.records([each for each, _ in named]), strict=True):
            if found is None:
                continue
            record: Record = _decoders[each.type].decode(found.body)
            if isinstance(record, ContextItem):
                await self.items([ExportItem(EngineItem(without_content(record), None), readers)])
            else:
                self._write(record, readers)

    async def _named_versions(self, wanted: Sequence[VersionOrigin]) -> None:
        for line_id in sorted({version.name.line_id for version in wanted}):
            if await self._opened(line_id) is not None:
                here = [version for version in wanted if version.name.line_id == line_id]
                for start in range(0, len(here), PAGE):
                    await self._versions(line_id, await self._found(line_id, here[start : start + PAGE]))

    async def _found(self, line_id: str, wanted: Sequence[VersionOrigin]) -> list[Version]:
        """Return versions that a line made itself: what it has from elsewhere goes by another name."""
        lines = self.sources.timelines.lines
        base = (await lines.past(line_id, LATEST))[0].after
        spots = [ChangeRef(line_id, at.name.key, at.commit) for at in wanted if at.commit is not None]
        found = [version for version in (await lines.versions_at(spots)).values() if version.seq > base]
        for at in wanted:
            if at.commit is None:
                numbered = await numbered_here(at.name, lines)
                found += [version for version in numbered if (version.change.act != "write") is at.name.removed]
        return found

    async def named_messages(self, wanted: Sequence[MessageItemId]) -> None:
        sources = self.sources
        for start in range(0, len(wanted), PAGE):
            some = wanted[start : start + PAGE]
            found = await sources.transcripts.messages.find_several(some[0].session_id, [n.message_id for n in some])
            visible = sorted((m for m in found if m.visible_to(sources.actor)), key=lambda m: m.message_id)
            await self._messages(some[0].session_id, visible)

    async def _messages(self, session_id: str, messages: Sequence[Message]) -> None:
        await self.items([ExportItem(message_item(session_id, message), (message.audience,)) for message in messages])

    async def _opened(self, line_id: str) -> OpenLine | None:
        with contextlib.suppress(NotFound, Forbidden):
            return await self.sources.timelines.to_read(line_id)
        return None

    async def _said(self, kept: StoredRecord, item: ContextItem) -> str | None:
        """Return what a stored item says: in itself, or kept beside it."""
        if isinstance(item.content, str):
            return item.content
        content = await stored_content(item, kept.session_id, self.sources.records)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            return None

    async def kept(self, names: EventSubjects) -> list[StoredRecord]:
        """Return those stored records among what was named that are of this session, or of none."""
        found = await self.sources.records.find_several([*names.stored])
        return [kept for kept in found if self._readable(kept) and self._is_here(kept.session_id)]

    async def _give_way(self, characters: int = 0) -> None:
        """Let others have a turn once so much was done; a page of an export takes as long as hundreds of calls."""
        self.worked += 1 + characters // _LIKE_AN_ITEM
        if self.worked >= _AT_A_STRETCH:
            self.worked = 0
            await self.sources.turns.yield_to_loop()

    def _readable(self, kept: StoredRecord) -> bool:
        return kept.readable_by == ANYONE or self.sources.actor.matches(kept.readable_by)

    def _is_here(self, session_id: str | None) -> bool:
        return session_id is None or (self.session is not None and self.session.session_id == session_id)

    def _write(self, record: Record, readable_by: tuple[str, ...] = ANYONE, stored: Maybe[StoredInfo] = UNSET) -> None:
        leaving = self.applied.record(record, readable_by)
        if leaving is not None:
            self.sink.add_record(leaving, readable_by, stored)


def add_event(recorded: StoredEvent, source: str, applied: AppliedPolicy, sink: ExportSink) -> None:
    """Write an event as far as it may leave."""
    event = to_context_event(recorded, source)
    leaving = None if event is None else applied.event(event, recorded.readable_by)
    if leaving is not None:
        sink.add_record(leaving, recorded.readable_by)


def _record(kept: StoredRecord) -> Record:
    record: Record = _decoders[kept.type].decode(kept.body)
    return record


def _sources_of(kept: Iterable[StoredRecord]) -> Iterable[str]:
    """Return the sources that stored items name."""
    for each in kept:
        record = _record(each)
        if isinstance(record, ContextItem):
            yield from (ref for ref in record.source_refs if isinstance(ref, str))
