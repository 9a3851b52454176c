"""Cursor of the session indexer in the event log, and the items that events change."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.history.item_ids import MessageItemId, VersionId
from weftline.history.line_kinds import line_of, session_of
from weftline.indexing.collections import (
    MEMORY,
    SOURCES,
    WINDOWS,
    MemoryKey,
    Source,
    WindowPlace,
    domain_collection,
    item_of_key,
)
from weftline.kernel.identity import PRINCIPAL, TEAM
from weftline.kernel.job_store import Progress
from weftline.search.items import MESSAGE_VERSION, is_window, version_of, window_place
from weftline.search.persistent_memory import is_persistent, item_of_entry, memory_place, own_place
from weftline.sessions.events.model import EventFilter
from weftline.state.agent_context.model import ContextLine, EntryAddress
from weftline.state.memory.model import scope_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from weftline.kernel.events import StoredEvent
    from weftline.kernel.identity import Actor
    from weftline.kernel.job_store import JobStore
    from weftline.search.scope import RequestedScope


# Cursor of the session indexer in the event log, and the items that events change.

# Job names of a tenant: indexing new events, embedding what they changed, and reindexing older ones, newest first.
INDEXING_JOB = "sessions.follow"
EMBEDDING_JOB = "sessions.embed"
REINDEXING_JOB = "sessions.reindex"
IMPORTED = "session.imported"
_NOBODY = ""
_ANY_TIME = 2**62
# Principals whose newest items without vectors are known; of more, the latest.
_MAX_WRITERS = 100
_MESSAGE_EVENTS = frozenset({"message.added", "message.visibility_changed"})
_BOARD_EVENTS = frozenset({"board.written", "board.deleted", "board.expired"})
_MEMORY_EVENTS = frozenset({"memory.written", "memory.deleted", "memory.expired"})
_SWITCHED = "history.switched"
_TEAM_DELETED = "team.deleted"
# What a read without a session shows may change with any of these.
_CONTEXT_EVENTS = frozenset(
    {
        *("context.pushed", "context.expired", "history.rolled_back", "history.merged"),
        *(_SWITCHED, "history.branch_deleted"),
    }
)
_PIN_EVENTS = frozenset({"pin.added", "pin.removed"})
_INGESTED = "window.ingested"
_WINDOW_EVENTS = frozenset({_INGESTED, "window.changed"})
REDACTED = "context.redaction.applied"


class IndexItem(NamedTuple):
    """An item to index, and its place in a collection."""

    source: Source
    place: str
    item: str

    @property
    def collection(self) -> str:
        return SOURCES[self.source].collection or domain_collection(self.place)

    @property
    def session_id(self) -> str | None:
        """Return the session that the item belongs to; None if it belongs to none."""
        if self.source == "memory":
            return None if is_persistent(self.place) else MemoryKey.parse(self.item).session_id
        return WindowPlace.parse(self.place).session_id if self.source == "event" else self.place


class Sweep(msgspec.Struct, frozen=True):
    """Progress within an event of many items: an imported session, board keys first, then messages; a window; a push.

    ``imported`` is the number of that event. Lines are swept as a whole after all events; ``is_inside``: the line
    ``after_place`` is not complete.
    """

    imported: int
    after_key: str = ""
    after_message: int | None = None
    after_event: int = 0
    after_place: str = ""
    after_item: str = ""
    is_inside: bool = False


class ReindexRange(msgspec.Struct, frozen=True):
    """Chunks up to these numbers are to be replaced; ``reembed``: also embedded again."""

    sessions: int
    memory: int
    reembed: bool = False
    windows: int = 0

    def replaces(self, collection: str, number: int) -> bool:
        last = {MEMORY: self.memory, WINDOWS: self.windows}.get(collection, self.sessions)
        return number <= last


class IndexCursor(NamedTuple):
    """The last event that was processed; ``sweep`` is the progress within the next one.

    Current items are left unchanged, except those within ``reindex``.
    """

    seq: int = 0
    sweep: Sweep | None = None
    reindex: ReindexRange | None = None

    @classmethod
    def of(cls, progress: Progress) -> IndexCursor:
        sweep, reindex = _state_decoder.decode(progress.done) if progress.done else (None, None)
        return cls(int(progress.cursor or 0), sweep, reindex)

    def at(self, seq: int, sweep: Sweep | None = None) -> IndexCursor:
        """Return a cursor at an event, with the same reindex range."""
        return self._replace(seq=seq, sweep=sweep)

    def as_progress(self) -> Progress:
        state = (self.sweep, self.reindex)
        return Progress(str(self.seq), "" if state == (None, None) else msgspec.json.encode(state).decode())


_state_decoder = msgspec.json.Decoder(tuple[Sweep | None, ReindexRange | None])


def changed_item(stored: StoredEvent) -> IndexItem | None:
    """Return the item that an event changes; None if it is not searchable."""
    event = stored.event
    if event.type in _MESSAGE_EVENTS and event.session_id is not None:
        return IndexItem("message", event.session_id, event.subject)
    if event.type in _BOARD_EVENTS and event.session_id is not None:
        return IndexItem("board", event.session_id, item_of_key(event.subject))
    if event.type in _MEMORY_EVENTS:
        owner = next((reader.removeprefix(PRINCIPAL) for reader in stored.readable_by), "")
        return IndexItem("memory", owner, str(MemoryKey(event.session_id, event.subject)))
    if event.type in _PIN_EVENTS:
        return IndexItem(event.data["source"], event.data["place"], event.data["item"])
    if event.type != REDACTED:
        return None
    indexed = indexed_version_of(event.subject)
    return indexed_entry_of(event.subject) if indexed is None else indexed.item


class ChangedMemory(NamedTuple):
    """A persistent memory that an event changes.

    ``line_id``: the entries changed after version ``after`` of this root, up to ``upto``. Any entry if it is None.
    """

    place: str
    line_id: str | None = None
    after: int = 0
    upto: int = 0


def changed_memory(stored: StoredEvent) -> ChangedMemory | None:
    """Return the persistent memory that an event changes; None if it changes none."""
    event = stored.event
    if event.type == _TEAM_DELETED:
        return ChangedMemory(f"{TEAM}{event.subject}")
    line_id = event.data.get("context_id") if event.type in _CONTEXT_EVENTS else None
    place = memory_place(line_id) if isinstance(line_id, str) else None
    if place is None or not isinstance(line_id, str):
        return None
    if event.type == _SWITCHED and place != own_place(stored.principal_id or ""):
        # The memory of a team is indexed as it is on its main line, whatever a member has checked out.
        return None
    after, upto = event.data.get("previous_version"), event.data.get("version")
    if not isinstance(after, int) or not isinstance(upto, int):
        return ChangedMemory(place)
    return ChangedMemory(place, line_id, after, upto)


class ChangedWindow(NamedTuple):
    """A window that an event changes: the events from ``first`` to ``last``, or any of them if None."""

    place: str
    first: int | None = None
    last: int | None = None


def changed_window(stored: StoredEvent) -> ChangedWindow | None:
    """Return the window that an event changes; None if it changes none."""
    event = stored.event
    # Without it, only settings of the window changed.
    line_id = event.data.get("context_id") if event.type in _WINDOW_EVENTS else None
    if not isinstance(line_id, str):
        return None
    if event.type != _INGESTED:
        return ChangedWindow(window_place(line_id))
    return ChangedWindow(window_place(line_id), event.data["first"], event.data["last"])


def indexed_entry_of(item_id: str) -> IndexItem | None:
    """Return the item for an item id of records that names an entry of persistent memory; None for any other."""
    version = VersionId.parse(item_id)
    place = None if version is None else memory_place(version.line_id)
    if version is None or place is None:
        return None
    part = ContextLine.parse(version.line_id).part
    return IndexItem("memory", place, item_of_entry(EntryAddress(part or "", version.key)))


class IndexedVersion(NamedTuple):
    """One version of an item, as indexed."""

    item: IndexItem
    version: int


def indexed_version_of(item_id: str) -> IndexedVersion | None:
    """Return the indexed version for an item id of records.

    None if it is not searchable, or if its version is not in the id: a window event, or an entry of persistent memory.
    """
    message = MessageItemId.parse(item_id)
    if message is not None:
        return IndexedVersion(IndexItem("message", message.session_id, str(message.message_id)), MESSAGE_VERSION)
    version = VersionId.parse(item_id)
    if version is None or is_window(version.line_id):
        return None
    memory = scope_of(version.line_id)
    if memory is not None:
        item = IndexItem("memory", memory.owner, str(MemoryKey(memory.session_id, version.key)))
        return IndexedVersion(item, version_of(version))
    session_id = session_of(version.line_id)
    if version.line_id != line_of(session_id):
        # Branches of boards are not searchable.
        return None
    return IndexedVersion(IndexItem("board", session_id, item_of_key(version.key)), version_of(version))


async def start_session_reindex(jobs: JobStore, last_seq: int, reindex: ReindexRange | None = None) -> None:
    """Index all past events, newest first.

    A reindex range in progress is kept unless a new one is given.
    """
    # The lease of the indexing job covers this work; this job only stores the cursor, so it can always be claimed.
    indexed = await jobs.claim(REINDEXING_JOB, _NOBODY, _ANY_TIME, 0, due_by=_ANY_TIME)
    if reindex is None and indexed is not None:
        reindex = IndexCursor.of(indexed).reindex
    await jobs.save(REINDEXING_JOB, IndexCursor(last_seq + 1, reindex=reindex).as_progress())


class VectorBacklog(msgspec.Struct, frozen=True):
    """Collections with chunks that are found by words only so far; each with the number of the first of them.

    ``own``: of each principal whose newest items are among them, the number of the last by collection.
    """

    first: dict[str, int] = {}
    own: dict[str, dict[str, int]] = {}

    @classmethod
    def of(cls, progress: Progress | None) -> VectorBacklog:
        return cls() if progress is None or not progress.done else _backlog_decoder.decode(progress.done)

    @property
    def next(self) -> tuple[str, int] | None:
        return next(iter(self.first.items()), None)

    def lacks(self, collection: str, number: int) -> bool:
        """Tell whether a chunk, or one before it, may lack its vector."""
        return self.first.get(collection, number + 1) <= number

    @classmethod
    async def held(cls, jobs: JobStore) -> VectorBacklog:
        """Return the backlog, locked until the transaction ends."""
        return cls.of(await jobs.held(EMBEDDING_JOB))

    async def extend(
        self, jobs: JobStore, added: Mapping[str, int], own: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Note collections to which chunks were added without vectors, with the first number of these.

        ``own``: whose they are, with the number of the last.
        """
        changed = {each: {**self.own.get(each, {}), **last} for each, last in (own or {}).items()}
        kept = {each: last for each, last in self.own.items() if each not in changed}
        newest = dict([*kept.items(), *changed.items()][-_MAX_WRITERS:])
        await self._save(jobs, VectorBacklog({**added, **self.first}, newest))

    async def advance(self, jobs: JobStore, collection: str, embedded: int, first: int | None) -> None:
        """Note the last chunk of a collection that was embedded, and the first that still lacks a vector, if any."""
        # Last, so that collections take turns.
        others = {each: number for each, number in self.first.items() if each != collection}
        rest = others if first is None else {**others, collection: first}
        own = {
            principal: left
            for principal, last in self.own.items()
            if (left := {each: at for each, at in last.items() if each != collection or at > embedded})
        }
        await self._save(jobs, VectorBacklog(rest, own))

    async def _save(self, jobs: JobStore, backlog: VectorBacklog) -> None:
        if backlog.first:
            await jobs.save(EMBEDDING_JOB, Progress("", msgspec.json.encode(backlog).decode()))
        else:
            await jobs.drop(EMBEDDING_JOB)


_backlog_decoder = msgspec.json.Decoder(VectorBacklog)


async def is_reindex_unchanged(jobs: JobStore, progress: Progress) -> bool:
    """Return whether reindexing was not restarted, and lock its cursor until the transaction ends."""
    return await jobs.renew(REINDEXING_JOB, _NOBODY, 0) == progress


def pending_events(progress: Progress | None, last_seq: int) -> int:
    """Return the number of events that are not indexed yet."""
    reached = 0 if progress is None else IndexCursor.of(progress).seq
    return max(0, last_seq - reached)


def remaining_events(progress: Progress) -> int:
    """Return the number of events left to reindex."""
    return max(0, IndexCursor.of(progress).seq - 1)


def pending_source(
    stored: StoredEvent, actor: Actor, filters: RequestedScope, readable: Collection[str] = ()
) -> Source | None:
    """Return what a caller's search may miss because an event is not indexed; None if it is not in its scope.

    ``readable`` are the places of persistent memory that it may read.
    """
    source, memory = _changed_source(stored), changed_memory(stored)
    searched = filters.in_sessions if stored.event.type == IMPORTED else filters.searched_sources & {source}
    if source is None or not searched:
        return None
    if memory is not None:
        # It belongs to no session, whichever it was pushed from.
        return source if memory.place in readable else None
    if source == "event" and f"{PRINCIPAL}{actor.principal_id}" not in stored.readable_by:
        # Admins may see that others' windows change, but do not find what is in them.
        return None
    is_visible = filters.includes_session(stored.event.session_id) and EventFilter().covers(stored, actor)
    return source if is_visible else None


def _changed_source(stored: StoredEvent) -> Source | None:
    if stored.event.type == IMPORTED:
        return "message"
    if changed_window(stored) is not None:
        return "event"
    if changed_memory(stored) is not None:
        return "memory"
    item = changed_item(stored)
    return None if item is None else item.source
