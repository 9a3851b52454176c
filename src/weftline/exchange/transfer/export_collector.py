"""Collects the entries of an export: reads page by page what the caller may see, and writes what the policy allows."""

from __future__ import annotations

import contextlib
import logging
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from weftline.exchange.record_log.add import stored_content
from weftline.exchange.record_log.engine_items import (
    EngineItem,
    message_item,
    session_surface,
    source_record,
    sources_in,
    version_item,
)
from weftline.exchange.record_log.lookup import RecordFinder, numbered_here
from weftline.exchange.record_log.redacted_records import redact_quotes, without_content
from weftline.exchange.transfer.bundle_format import BundleContent, BundleSnapshot, BundleWindow, StoredInfo
from weftline.exchange.transfer.envelope_ids import MAX_REFS
from weftline.history.composite_lines import entry_at
from weftline.history.item_ids import MessageItemId, VersionId
from weftline.history.key_acls import KeyVersion
from weftline.history.line_kinds import SESSION, has_acls, line_of, name_in
from weftline.history.model import LATEST
from weftline.history.service import History
from weftline.history.store import ChangeRef
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import Forbidden, NotFound
from weftline.kernel.identity import ANYONE, PRINCIPAL, Actor
from weftline.kernel.ports import Cooperative
from weftline.records.event_classes import to_context_event
from weftline.records.model import ContextItem, ContextSummary, Record, decode_record
from weftline.records.record_ids import (
    COMPACTION,
    RECEIPT_EVENTS,
    PullOrigin,
    ReceiptOrigin,
    StoredRecordId,
    VersionOrigin,
    item_of_event,
    parse_item_id,
    records_of_event,
)
from weftline.records.schemas import StoredRecord
from weftline.records.sql import RecordStore
from weftline.sessions.events.model import EventFilter, EventQuery
from weftline.sessions.events.sql import EventStore
from weftline.sessions.messages.model import TranscriptRange
from weftline.sessions.messages.transcript import Transcripts
from weftline.sessions.recorder import referenced_item_ids
from weftline.state.board.board_view import VersionAcl
from weftline.windows.model import PREFIX, agent_of, content_key, decode_event, encode_whole_event
from weftline.windows.sql import WindowStore
from weftline.windows.window_writer import visible_versions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from weftline.exchange.transfer.bundle_format import AnyBundleEntry
    from weftline.exchange.transfer.policy_filter import AppliedPolicy
    from weftline.history.line_kinds import OpenLine
    from weftline.history.model import Tag, Version
    from weftline.history.reviews import Review
    from weftline.kernel.events import StoredEvent
    from weftline.records.record_ids import RecordRef
    from weftline.records.refs import Maybe
    from weftline.sessions.messages.model import Message
    from weftline.sessions.model import Session
    from weftline.windows.model import WindowSettings

_log = logging.getLogger("weftline.transfer")
# Bounds the memory of an export.
PAGE = 500
# Items between two yields to the event loop; this many characters count as one item.
_ITEMS_PER_YIELD = 50
_CHARACTERS_PER_ITEM = 2_048
_BUNDLE = "bundle_[0-9a-f]{16}"
_OF_EXPORT = re.compile(rf"context_envelope {_BUNDLE}|context_(selection|budget) {_BUNDLE}/\1")
_WINDOW = f"{PREFIX}:"
_COMPACTIONS = frozenset({"context_compaction", "context_summary"})
# Events about the private data of an agent, which only that agent may see.
_PRIVATE_EVENTS = ("context.pulled", "context.pushed", "memory.", "agent.", *RECEIPT_EVENTS)


class ExportSink(Protocol):
    """Where an export is written."""

    records: int
    bytes: int

    def add(self, entry: AnyBundleEntry) -> None: ...

    def add_record(
        self,
        record: Record,
        readable_by: tuple[str, ...] = ANYONE,
        stored: Maybe[StoredInfo] = UNSET,
        salt: Maybe[str] = UNSET,
    ) -> None: ...

    def seal(self) -> str:
        """Finish the export and return its digest."""
        ...


class ExportSources(msgspec.Struct, frozen=True):
    """The stores and services that an export reads, bound to its caller."""

    actor: Actor
    history: History
    transcripts: Transcripts
    events: EventStore
    records: RecordStore
    finder: RecordFinder
    cooperative: Cooperative
    windows: WindowStore


@dataclass(slots=True)
class EventSubjects:
    """The key versions, messages and stored records that events are about."""

    versions: dict[str, VersionOrigin] = field(default_factory=dict)
    messages: dict[str, MessageItemId] = field(default_factory=dict)
    stored: dict[tuple[str, str], None] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        return {version.name.key for version in self.versions.values()}

    def add(self, recorded: StoredEvent) -> None:
        for named in records_of_event(recorded):
            self._add(named)

    def add_item(self, item_id: str) -> None:
        self._add(parse_item_id(item_id))

    def _add(self, named: RecordRef) -> None:
        origin = named.origin
        if isinstance(origin, VersionOrigin) and _is_of_session(origin.name.line_id):
            self.versions.setdefault(named.id, origin)
        elif isinstance(origin, MessageItemId):
            self.messages.setdefault(named.id, origin)
        elif isinstance(origin, StoredRecordId):
            self.stored.setdefault((origin.type, origin.record_id))


@dataclass(slots=True)
class _CommitSalt:
    """The salt of a commit. It is exported with the last version of a commit that is exported whole and unchanged.

    To those who do not have all of the commit, its hash must not confirm what they guess of the rest.
    """

    salt: bytes
    missing: int

    def after(self, *, unchanged: bool) -> Maybe[str]:
        """Count an exported version of the commit; return the salt if it was the last."""
        self.missing -= unchanged
        return UNSET if self.missing else self.salt.hex()


class ExportItem(NamedTuple):
    """An item to export with its ACL; for a stored record its author and time, for a version the salt of its commit."""

    item: EngineItem
    readable_by: tuple[str, ...] = ANYONE
    stored: Maybe[StoredInfo] = UNSET
    commit: _CommitSalt | None = None


class ExportedItem(NamedTuple):
    """An exported item, without its content."""

    item_id: str
    kind: str
    tokens: Maybe[int]
    is_public: bool

    @classmethod
    def of(cls, item: ContextItem, readable_by: tuple[str, ...]) -> ExportedItem:
        is_public = item.sensitivity == "internal" and readable_by == ANYONE
        return cls(item.item_id, item.context_kind, item.token_estimate, is_public)


@dataclass(slots=True)
class ExportTally:
    """Items of an export that every participant of the session may read: their size, and the first of their ids.

    Others are not counted: the number would reveal what they do not see.
    """

    items: int = 0
    tokens: int = 0
    bytes: int = 0
    omitted: int = 0
    first_ids: list[str] = field(default_factory=list)

    def add(self, item: ContextItem, readable_by: tuple[str, ...]) -> None:
        if not ExportedItem.of(item, readable_by).is_public:
            return
        self.items += 1
        self.tokens += 0 if item.token_estimate is UNSET else item.token_estimate
        self.bytes += 0 if item.byte_size is UNSET else item.byte_size
        if len(self.first_ids) < MAX_REFS:
            self.first_ids.append(item.item_id)

    def omit(self, item: ContextItem, readable_by: tuple[str, ...]) -> None:
        self.omitted += ExportedItem.of(item, readable_by).is_public


@dataclass(slots=True)
class ExportCollector:
    """Collects one export. ``exported`` lists the exported items if ``remember`` is set.

    With ``names_only`` records are passed on unmasked and without contents, to a sink that only needs their ids.
    """

    sources: ExportSources
    applied: AppliedPolicy
    sink: ExportSink
    session: Session | None
    exported: list[ExportedItem] = field(default_factory=list)
    remember: bool = False
    names_only: bool = False
    tally: ExportTally = field(default_factory=ExportTally)
    acl: VersionAcl = field(init=False)
    work_since_yield: int = 0
    of_session: set[tuple[str, str]] = field(default_factory=set)
    # Events of windows that were written, where not all of them are.
    events_written: set[str] = field(default_factory=set)
    # Lines that compactions name, and whether the caller may open them.
    opened: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.acl = VersionAcl(self.sources.actor, self.sources.history.lines)

    async def surface(self) -> None:
        """Write the session's surface and its sources."""
        if self.session is None:
            return
        of_session = [session_surface(self.session), *map(source_record, sources_in(self.session.session_id))]
        for record in of_session:
            self._write(record)
        self.of_session.update((record.type, record.id) for record in of_session)

    async def board(self, session_id: str) -> None:
        """Write every version and deletion of the board and its branches."""
        board = line_of(session_id)
        branches = await self.sources.history.lines.branches(board)
        for line_id in (board, *(branch.head.line_id for branch in branches)):
            await self.sources.history.to_read(line_id)
            after = 0
            while page := await self.sources.history.lines.changes_after(line_id, after, PAGE):
                after = page[-1].seq
                # An import restores the board itself, not its branches.
                await self._versions(line_id, page, _salts(page) if line_id == board else None)

    async def windows(self, session_id: str, *, history: bool) -> list[BundleWindow]:
        """Write the events of the windows that the caller may open; return their settings, to be written at the end."""
        found, after = [], ""
        while page := await self.sources.windows.of_session(session_id, after, PAGE):
            after = page[-1].agent_id
            for settings in page:
                if await self._opened(settings.line_id) is not None:
                    await self._window(settings.line_id, history=history)
                    found.append(await self._window_entry(settings, history=history))
        return found

    async def _window(self, line_id: str, *, history: bool) -> None:
        lines = self.sources.history.lines
        if not history:
            present = await lines.state_at(line_id, LATEST)
            await self._versions(line_id, present)
            changes = (version.change for version in present)
            names = (VersionId(line_id, each.key, each.incarnation, each.version) for each in changes)
            self.events_written.update(map(str, names))
            return
        branches = await lines.branches(line_id)
        for name in (line_id, *(branch.head.line_id for branch in branches)):
            after = 0
            while page := await lines.changes_after(name, after, PAGE):
                after = page[-1].seq
                await self._versions(name, page)

    async def _window_entry(self, settings: WindowSettings, *, history: bool) -> BundleWindow:
        tags = await self.sources.history.lines.tags(settings.line_id) if history else ()
        fields = msgspec.structs.asdict(settings) | {
            "created_at": from_micros(settings.created_at),
            "updated_at": from_micros(settings.updated_at),
            "checkpoints": tuple(map(self._snapshot, tags)),
        }
        return BundleWindow(**{name: fields[name] for name in BundleWindow.__struct_fields__})

    async def current_board(self, session_id: str, keys: Collection[str] | None = None) -> None:
        """Write the current board: all keys, or only some."""
        history = self.sources.history
        line_id = line_of(session_id)
        await history.to_read(line_id)
        present = await history.lines.state_at(line_id, LATEST)
        live = [
            version
            for version in present
            if (version.change.meta.expires_at or LATEST) > history.now and (keys is None or version.change.key in keys)
        ]
        await self._versions(line_id, live)

    async def messages(self, session_id: str, *, pages: int | None = None) -> None:
        transcript = await self.sources.transcripts.to_read(session_id)
        after, more, read = 0, True, 0
        while more and read != pages:
            read += 1
            page = await transcript.page(TranscriptRange(after=after, limit=PAGE))
            await self._messages(session_id, page.messages)
            after, more = page.messages[-1].message_id if page.messages else 0, page.has_more

    async def snapshots(self, session_id: str) -> list[BundleSnapshot]:
        """Return the snapshots of a session, to be written after all records."""
        return [self._snapshot(tag) for tag in await self.sources.history.lines.tags(line_of(session_id))]

    def _snapshot(self, tag: Tag) -> BundleSnapshot:
        return BundleSnapshot(
            label=self.applied.name(tag.label),
            seq=tag.seq,
            created_by=tag.created_by,
            created_at=from_micros(tag.created_at),
            automatic=tag.automatic,
        )

    async def records(self, session_id: str, *, pages: int | None = None) -> None:
        """Write the stored records of a session, or the first pages of them, without those of earlier exports.

        An export records the ids of what it contains; if later ones contained that too, each would be larger.
        """
        after, read = 0, 0
        while read != pages and (page := await self.sources.records.of_session(session_id, after, PAGE)):
            after, read = page[-1].seq, read + 1
            await self.add_stored(each for each in page if not _is_of_export(each))

    async def sources_of_compactions(self, session_id: str) -> None:
        """Write the events that compactions of a session name as their sources and that were not written yet."""
        after = 0
        while page := await self.sources.records.of_session(session_id, after, PAGE):
            after, subjects = page[-1].seq, EventSubjects()
            for row in page:
                if row.type in _COMPACTIONS and self._readable(row):
                    for item_id in referenced_item_ids(decode_record(row.type, row.body)):
                        if item_id not in self.events_written:
                            subjects.add_item(item_id)
            self.events_written |= subjects.versions.keys()
            # Keys of the board have an ACL, and those that the caller may read were written.
            await self._named_versions([each for each in subjects.versions.values() if not has_acls(each.name.line_id)])

    def add_made(self, record: Record, readable_by: tuple[str, ...], at: datetime) -> None:
        """Write a record that the export itself creates."""
        self._write(record, readable_by, StoredInfo(self.sources.actor.participant, at, at))

    async def events(self, query: EventQuery) -> None:
        """Write events, each page after the private items that only these events refer to."""
        source = await self.sources.events.source()
        async for page in self.visible_events(query):
            await self._private_items(page)
            for recorded in page:
                add_event(recorded, source, self.applied, self.sink)
                await self._yield_to_loop()

    async def visible_events(self, query: EventQuery) -> AsyncIterator[Sequence[StoredEvent]]:
        """Yield pages of events that the caller may see."""
        event_filter, after = EventFilter(query.session_id), 0
        while page := await self.sources.events.find(query, after, PAGE):
            after = page[-1].event.seq
            yield await self._without_closed([each for each in page if event_filter.covers(each, self.sources.actor)])

    async def subjects(self, query: EventQuery) -> EventSubjects:
        """Return what events are about."""
        subjects = EventSubjects()
        async for page in self.visible_events(query):
            for recorded in page:
                subjects.add(recorded)
        return subjects

    async def about(self, subjects: EventSubjects) -> None:
        """Write what events are about: items, stored records, and the items and sources these refer to."""
        first = await self.stored_rows(subjects)
        for row in first:
            for item_id in referenced_item_ids(decode_record(row.type, row.body)):
                subjects.add_item(item_id)
        for source_id in _sources_of(await self.stored_rows(subjects)):
            subjects.stored.setdefault(("context_source_ref", source_id))
        await self._named_versions(
            [at for at in subjects.versions.values() if self._in_scope(name_in(at.name.line_id, SESSION) or "")]
        )
        await self.named_messages([name for name in subjects.messages.values() if self._in_scope(name.session_id)])
        await self.add_stored(await self.stored_rows(subjects))

    async def review(self, review: Review) -> None:
        """Write the base and both sides of every conflict of a merge review."""
        points = (
            (review.base_line, review.base_seq),
            (review.line_id, review.ours_seq),
            (review.source_line, review.theirs_seq),
        )
        for line_id, seq in points:
            line = await self._opened(line_id)
            if line is None:
                continue
            lines = self.sources.history.lines
            sides = [await entry_at(lines, line_id, sides.key, seq) for sides in review.conflicts]
            for version, readers in await self._readable_versions(
                line, [version for version in sides if version is not None]
            ):
                home = (await lines.past(line_id, version.seq))[0].line_id
                await self.items([ExportItem(version_item(home, version), readers)])

    async def items(self, items: Sequence[ExportItem]) -> None:
        """Write items as the policy allows, each followed by its content."""
        if self.names_only:
            for each in items:
                self._name(each.item.record, each.readable_by)
            return
        redactions = await self.sources.records.redactions([each.item.record.item_id for each in items])
        for item, readable_by, stored, commit in items:
            await self._yield_to_loop(len(item.text or ""))
            exported = self.applied.item(item, redactions.get(item.record.item_id), readable_by)
            if exported is None:
                self.tally.omit(item.record, readable_by)
                continue
            self.tally.add(exported.record, readable_by)
            salt = UNSET if commit is None else commit.after(unchanged=exported is item)
            self.sink.add_record(exported.record, readable_by, stored, salt)
            if exported.record.content is UNSET and exported.text is not None:
                self.sink.add(BundleContent.of(exported.text.encode()))
            if self.remember:
                self.exported.append(ExportedItem.of(exported.record, readable_by))

    async def add_stored(self, rows: Iterable[StoredRecord]) -> None:
        """Write stored records that the caller may read, with redactions applied."""
        for each in await redact_quotes([each for each in rows if self._readable(each)], self.sources.records):
            record = decode_record(each.type, each.body)
            if _is_own_compaction(record) and not await self._has_sources(record):
                self.applied.omitted += 1
                continue
            made = StoredInfo(each.recorded_by, from_micros(each.recorded_at), from_micros(each.changed_at))
            if isinstance(record, ContextItem):
                await self.items(
                    [ExportItem(EngineItem(record, await self._content_of(each, record)), each.readable_by, made)]
                )
            # One that has the id of the session's surface or source was not written by Weftline, and would be a second
            # one.
            elif (record.type, record.id) not in self.of_session:
                self._write(record, each.readable_by, made)

    async def _has_sources(self, compaction: Record) -> bool:
        """Tell whether the caller may open the windows whose events a compaction names, so that the bundle has them."""
        subjects = EventSubjects()
        for item_id in referenced_item_ids(compaction):
            subjects.add_item(item_id)
        lines = {each.name.line_id for each in subjects.versions.values() if not has_acls(each.name.line_id)}
        for line_id in sorted(lines - self.opened.keys()):
            self.opened[line_id] = await self._opened(line_id) is not None
        return all(self.opened[line_id] for line_id in lines)

    async def _versions(
        self, line_id: str, versions: Sequence[Version], salts: Mapping[int, _CommitSalt] | None = None
    ) -> None:
        if not has_acls(line_id):
            await self._window_events(line_id, versions)
            return
        # A version whose value was missing in an import has a stored record instead.
        here = [version for version in versions if not version.change.meta.not_imported]
        seen = await self.acl.readable(line_id, here)
        seen.sort(key=lambda each: (each[0].seq, each[0].change.key))
        await self.items(
            [
                ExportItem(version_item(line_id, version), readers, commit=(salts or {}).get(version.seq))
                for version, readers in seen
            ]
        )

    async def _window_events(self, line_id: str, versions: Sequence[Version]) -> None:
        """Write events of a window, each with its whole content, for its agent."""
        readers = (f"{PRINCIPAL}{agent_of(line_id)}",)
        here = [each for each in visible_versions(versions) if not each.change.meta.not_imported]
        here.sort(key=lambda each: (each.seq, each.change.key))
        whole = [await self._whole_event(line_id, version) for version in here]
        await self.items([ExportItem(version_item(line_id, version), readers) for version in whole])

    async def _whole_event(self, line_id: str, version: Version) -> Version:
        """Return a version of an event with the content that is a value of its own."""
        event = None if version.value is None else decode_event(line_id, version, None)
        if event is None or event.content_hash is None:
            return version
        at = await self.sources.history.lines.latest(line_id, content_key(version.change.key), version.seq)
        if at is None or at.value is None:
            return msgspec.structs.replace(version, value=None)
        return msgspec.structs.replace(version, value=encode_whole_event(decode_event(line_id, version, at.value)))

    async def _readable_versions(
        self, line: OpenLine, versions: Sequence[Version]
    ) -> list[tuple[Version, tuple[str, ...]]]:
        """Return the versions that the caller may read, with their ACL; lines without ACLs are private."""
        line_id = line.head.line_id
        if has_acls(line_id):
            return await self.acl.readable(line_id, versions)
        own = (f"{PRINCIPAL}{self.sources.actor.principal_id}",)
        return [(version, own) for version in await line.visible(versions)]

    async def _without_closed(self, events: Sequence[StoredEvent]) -> list[StoredEvent]:
        """Drop events of keys that the caller may not read any more."""
        by_line: dict[str, list[tuple[int, KeyVersion]]] = defaultdict(list)
        for recorded in events:
            about = item_of_event(recorded)
            if isinstance(about, VersionOrigin) and has_acls(about.name.line_id):
                version = KeyVersion(about.name.key, about.name.incarnation, about.commit or 0)
                by_line[about.name.line_id].append((recorded.event.seq, version))
        closed: set[int] = set()
        for line_id, pairs in by_line.items():
            known = await self.acl.may_know(line_id, [version for _, version in pairs])
            closed |= {seq for (seq, _), is_open in zip(pairs, known, strict=True) if not is_open}
        return [recorded for recorded in events if recorded.event.seq not in closed]

    async def _private_items(self, page: Sequence[StoredEvent]) -> None:
        """Write the private records of events: pulls into the session, and memory changes without their content.

        The content of private memory is never exported, not even by its owner.
        """
        events = [recorded for recorded in page if recorded.event.type.startswith(_PRIVATE_EVENTS)]
        if not events:
            return
        look = await self.sources.finder.look(None if self.session is None else self.session.session_id)
        named = [
            (each, recorded.readable_by)
            for recorded, of_event in zip(events, await look.records_of(events, events=False), strict=True)
            for each in of_event
            if isinstance(each.origin, PullOrigin | ReceiptOrigin | VersionOrigin)
        ]
        for (each, readers), found in zip(named, await look.records([each for each, _ in named]), strict=True):
            if found is None:
                continue
            record = decode_record(each.type, found.body)
            if isinstance(record, ContextItem):
                await self.items([ExportItem(EngineItem(without_content(record), None), readers)])
            else:
                self._write(record, readers)

    async def _named_versions(self, origins: Sequence[VersionOrigin]) -> None:
        for line_id in sorted({version.name.line_id for version in origins}):
            if await self._opened(line_id) is not None:
                here = [version for version in origins if version.name.line_id == line_id]
                for start in range(0, len(here), PAGE):
                    await self._versions(line_id, await self._found(line_id, here[start : start + PAGE]))

    async def _found(self, line_id: str, origins: Sequence[VersionOrigin]) -> list[Version]:
        """Return the versions that were made on the line itself: inherited ones have other ids."""
        lines = self.sources.history.lines
        base = (await lines.past(line_id, LATEST))[0].after
        spots = [ChangeRef(line_id, at.name.key, at.commit) for at in origins if at.commit is not None]
        found = [version for version in (await lines.versions_at(spots)).values() if version.seq > base]
        for at in origins:
            if at.commit is None:
                numbered = await numbered_here(at.name, lines)
                found += [version for version in numbered if (version.change.act != "write") is at.name.removed]
        return found

    async def named_messages(self, ids: Sequence[MessageItemId]) -> None:
        sources = self.sources
        for start in range(0, len(ids), PAGE):
            some = ids[start : start + PAGE]
            found = await sources.transcripts.messages.find_several(some[0].session_id, [n.message_id for n in some])
            visible = sorted((m for m in found if m.visible_to(sources.actor)), key=lambda m: m.message_id)
            await self._messages(some[0].session_id, visible)

    async def _messages(self, session_id: str, messages: Sequence[Message]) -> None:
        await self.items([ExportItem(message_item(session_id, message), message.readers) for message in messages])

    async def _opened(self, line_id: str) -> OpenLine | None:
        with contextlib.suppress(NotFound, Forbidden):
            return await self.sources.history.to_read(line_id)
        return None

    async def _content_of(self, row: StoredRecord, item: ContextItem) -> str | None:
        """Return the content of a stored item, inline or stored separately."""
        if isinstance(item.content, str):
            return item.content
        content = await stored_content(item, row.session_id, self.sources.records)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            return None

    async def stored_rows(self, subjects: EventSubjects) -> list[StoredRecord]:
        """Return the stored records among the subjects that belong to this session or to none."""
        found = await self.sources.records.find_several([*subjects.stored])
        return [row for row in found if self._readable(row) and self._in_scope(row.session_id)]

    async def _yield_to_loop(self, characters: int = 0) -> None:
        """Yield to the event loop regularly: a page of an export takes as long as hundreds of calls."""
        self.work_since_yield += 1 + characters // _CHARACTERS_PER_ITEM
        if self.work_since_yield >= _ITEMS_PER_YIELD:
            self.work_since_yield = 0
            await self.sources.cooperative.yield_to_loop()

    def _readable(self, row: StoredRecord) -> bool:
        if row.readable_by != ANYONE and not self.sources.actor.matches(row.readable_by):
            return False
        is_intact = _is_intact(row)
        self.applied.omitted += not is_intact
        return is_intact

    def _in_scope(self, session_id: str | None) -> bool:
        return session_id is None or (self.session is not None and self.session.session_id == session_id)

    def _name(self, record: Record, readable_by: tuple[str, ...]) -> None:
        if self.applied.may_name(record, readable_by):
            self.sink.add_record(record, readable_by)

    def _write(self, record: Record, readable_by: tuple[str, ...] = ANYONE, stored: Maybe[StoredInfo] = UNSET) -> None:
        if self.names_only:
            self._name(record, readable_by)
            return
        exported = self.applied.record(record, readable_by)
        if exported is not None:
            self.sink.add_record(exported, readable_by, stored)


def _is_own_compaction(record: Record) -> bool:
    """Tell whether Weftline made a compaction; a framework may record one with sources that only others can open."""
    name = record.compaction_ref if isinstance(record, ContextSummary) else record.id
    return record.type in _COMPACTIONS and str(name).startswith(COMPACTION)


def _is_of_session(line_id: str) -> bool:
    """Tell whether the versions of a line are exported: those of boards and windows."""
    return has_acls(line_id) or line_id.startswith(_WINDOW)


def _salts(versions: Sequence[Version]) -> dict[int, _CommitSalt]:
    """Return the salts of commits, given all their versions, by number."""
    salts: dict[int, _CommitSalt] = {}
    for version in versions:
        if version.salt is not None:
            salts.setdefault(version.seq, _CommitSalt(version.salt, 0)).missing += 1
    return salts


def add_event(recorded: StoredEvent, source: str, applied: AppliedPolicy, sink: ExportSink) -> None:
    """Write an event as the policy allows."""
    event = to_context_event(recorded, source)
    exported = None if event is None else applied.event(event, recorded.readable_by)
    if exported is not None:
        sink.add_record(exported, recorded.readable_by)


def _sources_of(rows: Iterable[StoredRecord]) -> Iterable[str]:
    """Yield the sources that stored items refer to."""
    for each in rows:
        record = decode_record(each.type, each.body)
        if isinstance(record, ContextItem):
            yield from (ref for ref in record.source_refs if isinstance(ref, str))


def _is_intact(row: StoredRecord) -> bool:
    """Tell whether a stored record can be decoded. One that is damaged must not prevent the export of all others."""
    try:
        decode_record(row.type, row.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        fields = {"record_type": row.type, "seq": row.seq}
        _log.warning("a stored record cannot be decoded and is left out of an export", extra={"fields": fields})
        return False
    return True


def _is_of_export(row: StoredRecord) -> bool:
    """Tell whether a record is the envelope, the selection or the budget of an export."""
    return _OF_EXPORT.fullmatch(f"{row.type} {row.record_id}") is not None
