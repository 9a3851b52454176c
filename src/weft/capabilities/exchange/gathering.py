"""What an export is made of: read a page at a time as its caller may see it, written as the policy lets it leave."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from weft.capabilities.events.model import EventStore, Interest, Wanted
from weft.capabilities.exchange.bundles import Content, Snapshot, Stored
from weft.capabilities.exchange.items import Item, message_item, session_surface, version_item
from weft.capabilities.exchange.naming import Stored as StoredName
from weft.capabilities.exchange.naming import VersionAt, item_named, named_by
from weft.capabilities.history.model import LATEST
from weft.capabilities.history.store import Spot
from weft.capabilities.messages.model import Part
from weft.capabilities.messages.transcripts import Transcripts
from weft.capabilities.records.classes import context_event
from weft.capabilities.records.item_names import MessageName
from weft.capabilities.records.model import RECORD_TYPES, ContextItem, ContextSourceRef, Record
from weft.capabilities.records.recording import items_of
from weft.capabilities.records.refs import Link
from weft.capabilities.records.store import Kept, RecordStore
from weft.capabilities.records.words import SCHEMA_VERSION
from weft.capabilities.sessions.model import line_of, session_of
from weft.capabilities.timeline.parts import entry_at
from weft.capabilities.timeline.timelines import Timelines
from weft.kernel.clock import from_micros
from weft.kernel.errors import Forbidden, NotFound
from weft.kernel.identity import ANYONE, Actor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence

    from weft.capabilities.exchange.bundles import AnyEntry
    from weft.capabilities.exchange.naming import Named
    from weft.capabilities.exchange.policy_port import Applied
    from weft.capabilities.history.keeping import OpenLine
    from weft.capabilities.history.model import Version
    from weft.capabilities.records.refs import Maybe
    from weft.capabilities.sessions.model import Session
    from weft.capabilities.timeline.model import Review
    from weft.kernel.events import Recorded

# So much is in memory at once, however much there is.
PAGE = 500
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in RECORD_TYPES.items()}


class Sink(Protocol):
    """Where an export is written."""

    records: int
    bytes: int

    def add(self, entry: AnyEntry) -> None: ...

    def add_record(
        self, record: Record, readable_by: tuple[str, ...] = ANYONE, stored: Maybe[Stored] = UNSET
    ) -> None: ...

    def seal(self) -> str:
        """End what was written and return its digest."""
        ...


class Sources(msgspec.Struct, frozen=True):
    """Everything that an export is read from, as its caller may see it."""

    actor: Actor
    timelines: Timelines
    transcripts: Transcripts
    events: EventStore
    records: RecordStore


@dataclass(slots=True)
class Names:
    """What events are about: versions of keys and messages, by name, and stored records."""

    versions: dict[str, VersionAt] = field(default_factory=dict)
    messages: dict[str, MessageName] = field(default_factory=dict)
    stored: dict[tuple[str, str], None] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        return {version.name.key for version in self.versions.values()}

    def add(self, recorded: Recorded) -> None:
        for named in named_by(recorded):
            self._note(named)

    def add_item(self, item_id: str) -> None:
        self._note(item_named(item_id))

    def _note(self, named: Named) -> None:
        origin = named.origin
        if isinstance(origin, VersionAt) and origin.name.line_id.startswith("board:"):
            self.versions.setdefault(named.id, origin)
        elif isinstance(origin, MessageName):
            self.messages.setdefault(named.id, origin)
        elif isinstance(origin, StoredName):
            self.stored.setdefault((origin.type, origin.record_id))


class Given(NamedTuple):
    """An item that left, without what it said."""

    item_id: str
    kind: str
    tokens: Maybe[int]
    is_open: bool

    @classmethod
    def of(cls, item: ContextItem) -> Given:
        return cls(item.item_id, item.context_kind, item.token_estimate, item.sensitivity == "internal")


@dataclass(slots=True)
class Gathering:
    """One export under way. ``given`` are the items that left, where that is to be remembered."""

    sources: Sources
    applied: Applied
    sink: Sink
    session: Session | None
    given: list[Given] = field(default_factory=list)
    remember: bool = False

    async def surface(self) -> None:
        """Write the session as the surface it is, and where what it holds comes from."""
        if self.session is None:
            return
        self._write(session_surface(self.session))
        for place, kind in (("board", "weft_board"), ("session", "weft_transcript")):
            uri = f"{place}://{self.session.session_id}"
            self._write(ContextSourceRef(schema_version=SCHEMA_VERSION, source_id=uri, uri=uri, source_kind=kind))

    async def board(self, session_id: str) -> None:
        """Write every version of the board and of its branches, and every removal."""
        board = line_of(session_id)
        branches = await self.sources.timelines.lines.branches(board)
        for line_id in (board, *(branch.head.line_id for branch in branches)):
            line = await self.sources.timelines.to_read(line_id)
            after = 0
            while page := await self.sources.timelines.lines.changes_behind(line_id, after, PAGE):
                after = page[-1].seq
                await self._versions(line, page)

    async def standing(self, session_id: str, keys: Collection[str] | None = None) -> None:
        """Write what the board says now: all of it, or only of some keys."""
        timelines = self.sources.timelines
        line_id = line_of(session_id)
        line = await timelines.to_read(line_id)
        present = await timelines.lines.state_at(line_id, LATEST)
        live = [
            version
            for version in present
            if (version.change.meta.expires_at or LATEST) > timelines.now
            and (keys is None or version.change.key in keys)
        ]
        await self._versions(line, live)

    async def messages(self, session_id: str) -> None:
        transcript = await self.sources.transcripts.to_read(session_id)
        after, more = 0, True
        while more:
            page = await transcript.page(Part(after=after, limit=PAGE))
            await self.items([message_item(session_id, message) for message in page.messages])
            after, more = page.messages[-1].message_id if page.messages else 0, page.has_more

    async def snapshots(self, session_id: str) -> None:
        for tag in await self.sources.timelines.lines.tags(line_of(session_id)):
            self.sink.add(
                Snapshot(
                    label=tag.label,
                    seq=tag.seq,
                    created_by=tag.created_by,
                    created_at=from_micros(tag.created_at),
                    automatic=tag.automatic,
                )
            )

    async def records(self, session_id: str, *, but: str) -> None:
        """Write the stored records of a session, but for the export's own envelope."""
        after = 0
        while page := await self.sources.records.of_session(session_id, after, PAGE):
            after = page[-1].seq
            await self.stored([kept for kept in page if kept.record_id != but])

    async def events(self, wanted: Wanted) -> None:
        source = await self.sources.events.source()
        async for recorded in self.told(wanted):
            event = context_event(recorded, source)
            if event is not None:
                self._write(event, recorded.readable_by)

    async def told(self, wanted: Wanted) -> AsyncIterator[Recorded]:
        """Yield the events that the caller may be told of."""
        interest, after = Interest(wanted.session_id), 0
        while page := await self.sources.events.find(wanted, after, PAGE):
            after = page[-1].event.seq
            for recorded in page:
                if interest.covers(recorded, self.sources.actor):
                    yield recorded

    async def named(self, wanted: Wanted) -> Names:
        """Return what events are about, with what stored records among it name."""
        names = Names()
        async for recorded in self.told(wanted):
            names.add(recorded)
        return names

    async def about(self, names: Names, *, but: str) -> None:
        """Write what events are about: items, stored records, and the items and sources which those name."""
        first = await self.kept(names)
        for kept in first:
            for item_id in items_of(_record(kept)):
                names.add_item(item_id)
        for source_id in _sources_of(await self.kept(names)):
            names.stored.setdefault(("context_source_ref", source_id))
        await self._named_versions([at for at in names.versions.values() if self._is_here(session_of(at.name.line_id))])
        await self.named_messages([name for name in names.messages.values() if self._is_here(name.session_id)])
        await self.stored([kept for kept in await self.kept(names) if kept.record_id != but])

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
            found = [await entry_at(lines, line_id, sides.key, seq) for sides in review.conflicts]
            for version in await line.visible([version for version in found if version is not None]):
                home = (await lines.past(line_id, version.seq))[0].line_id
                await self.items([version_item(home, version)])

    async def items(
        self, items: Sequence[Item], readable_by: tuple[str, ...] = ANYONE, stored: Maybe[Stored] = UNSET
    ) -> None:
        """Write items as far as they may leave, each with what it says behind it."""
        redactions = await self.sources.records.redactions([item.record.item_id for item in items])
        for item in items:
            leaving = self.applied.item(item, redactions.get(item.record.item_id), readable_by)
            if leaving is None:
                continue
            self.sink.add_record(leaving.record, readable_by, stored)
            if leaving.record.content_mode == "ref" and leaving.text is not None:
                self.sink.add(Content.of(leaving.text.encode()))
            if self.remember:
                self.given.append(Given.of(leaving.record))

    async def stored(self, kept: Iterable[Kept]) -> None:
        """Write stored records that the caller may read."""
        for each in kept:
            if not self._readable(each):
                continue
            record, made = (
                _record(each),
                Stored(each.recorded_by, from_micros(each.recorded_at), from_micros(each.changed_at)),
            )
            if isinstance(record, ContextItem):
                await self.items([Item(record, await self._said(each, record))], each.readable_by, made)
            else:
                self._write(record, each.readable_by, made)

    async def _versions(self, line: OpenLine, versions: Sequence[Version]) -> None:
        visible = sorted(await line.visible(versions), key=lambda version: (version.seq, version.change.key))
        await self.items([version_item(line.head.line_id, version) for version in visible])

    async def _named_versions(self, wanted: Sequence[VersionAt]) -> None:
        for line_id in sorted({version.name.line_id for version in wanted}):
            line = await self._opened(line_id)
            if line is not None:
                here = [version for version in wanted if version.name.line_id == line_id]
                for start in range(0, len(here), PAGE):
                    await self._versions(line, await self._found(here[start : start + PAGE]))

    async def _found(self, wanted: Sequence[VersionAt]) -> list[Version]:
        lines = self.sources.timelines.lines
        spots = [Spot(at.name.line_id, at.name.key, at.commit) for at in wanted if at.commit is not None]
        found = list((await lines.versions_at(spots)).values())
        for at in wanted:
            if at.commit is None:
                numbered = await lines.numbered(at.name.line_id, at.name.key, at.name.life, at.name.version)
                found += [version for version in numbered if (version.change.act != "write") is at.name.removed]
        return found

    async def named_messages(self, wanted: Sequence[MessageName]) -> None:
        sources = self.sources
        for start in range(0, len(wanted), PAGE):
            some = wanted[start : start + PAGE]
            found = await sources.transcripts.messages.find_several(some[0].session_id, [n.message_id for n in some])
            visible = sorted((m for m in found if m.visible_to(sources.actor)), key=lambda m: m.message_id)
            await self.items([message_item(some[0].session_id, message) for message in visible])

    async def _opened(self, line_id: str) -> OpenLine | None:
        with contextlib.suppress(NotFound, Forbidden):
            return await self.sources.timelines.to_read(line_id)
        return None

    async def _said(self, kept: Kept, item: ContextItem) -> str | None:
        """Return what a stored item says: in itself, or kept beside it by its digest."""
        if isinstance(item.content, str):
            return item.content
        if not isinstance(item.content_ref, Link) or not isinstance(item.content_ref.digest, str):
            return None
        digest = bytes.fromhex(item.content_ref.digest.removeprefix("sha256:"))
        content = await self.sources.records.content(kept.session_id, digest)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            return None

    async def kept(self, names: Names) -> list[Kept]:
        """Return those stored records among what was named that are of this session, or of none."""
        found = await self.sources.records.find_several([*names.stored])
        return [kept for kept in found if self._readable(kept) and self._is_here(kept.session_id)]

    def _readable(self, kept: Kept) -> bool:
        return kept.readable_by == ANYONE or self.sources.actor.matches(kept.readable_by)

    def _is_here(self, session_id: str | None) -> bool:
        return session_id is None or (self.session is not None and self.session.session_id == session_id)

    def _write(self, record: Record, readable_by: tuple[str, ...] = ANYONE, stored: Maybe[Stored] = UNSET) -> None:
        leaving = self.applied.record(record, readable_by)
        if leaving is not None:
            self.sink.add_record(leaving, readable_by, stored)


def _record(kept: Kept) -> Record:
    record: Record = _decoders[kept.type].decode(kept.body)
    return record


def _sources_of(kept: Iterable[Kept]) -> Iterable[str]:
    """Return the sources that stored items name."""
    for each in kept:
        record = _record(each)
        if isinstance(record, ContextItem):
            yield from (ref for ref in record.source_refs if isinstance(ref, str))
