"""Incremental indexer: reads the event log, finds outdated index entries and replaces them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.history.item_ids import VersionId
from weftline.history.line_kinds import kind_of, line_kinds, prefix_of, session_of
from weftline.indexing.collections import LOCK_ORDER, MEMORY, WINDOWS, MemoryKey, NewChunk, item_of_key
from weftline.indexing.embeddings import VectorStore
from weftline.indexing.sql import CollectionStore
from weftline.search.items import is_window, window_place
from weftline.search.persistent_memory import item_of_entry, version_of_entry
from weftline.search.session_cursor import (
    IMPORTED,
    REDACTED,
    ChangedMemory,
    ChangedWindow,
    IndexCursor,
    IndexItem,
    ReindexRange,
    Sweep,
    changed_item,
    changed_memory,
    changed_window,
)
from weftline.search.session_item_text import ItemText, ItemTexts
from weftline.sessions.events.sql import EventStore
from weftline.sessions.messages.model import TranscriptRange
from weftline.state.agent_context.memory_version import MemoryVersion, changed_addresses
from weftline.state.memory.model import scope_of

if TYPE_CHECKING:
    from weftline.indexing.collections import Chunk
    from weftline.kernel.events import StoredEvent


# Incremental indexer: reads the event log, finds outdated index entries and replaces them, in batches.

EVENT_BATCH_SIZE = 500
# Approximate number of texts embedded and written together.
TEXT_BATCH_SIZE = 32
_CHARACTERS_PER_TEXT = 1_000
# Lines whose items are found by their events, as long as there are events.
_BOARD = "board"
_SWEPT_BY_LINE = (_BOARD, "memory", "window")


class ItemChange(NamedTuple):
    """An outdated item: its current text, and the chunks to remove.

    ``is_current``: the chunks match the text and are only to be rebuilt. ``writer`` is the principal that changed it,
    if that is known.
    """

    item: IndexItem
    text: ItemText | None
    outdated: Sequence[int]
    is_current: bool = False
    writer: str | None = None

    @property
    def texts(self) -> int:
        """Return roughly how many texts must be embedded."""
        return 0 if self.text is None else 1 + self.text.size // _CHARACTERS_PER_TEXT


class IndexingRound(NamedTuple):
    """The next changes, and the cursor after them. ``more``: there are further events already."""

    changes: Sequence[ItemChange]
    reached: IndexCursor
    more: bool


class PreparedChange(NamedTuple):
    """A change with its new chunks, and their vectors of every model in use; no models if vectors follow later."""

    change: ItemChange
    chunks: Sequence[NewChunk]
    vectors: Mapping[str, Sequence[bytes | None]]

    @property
    def outdated(self) -> Sequence[int]:
        """Return the chunks to remove. Current ones stay if they could not be rebuilt."""
        return [] if self.change.is_current and not self.chunks else self.change.outdated


class Unembedded(NamedTuple):
    """Collections with new chunks that lack a vector, with the first number of these; whose they are, with the last."""

    first: dict[str, int]
    own: dict[str, dict[str, int]]


class Indexer(msgspec.Struct, frozen=True):
    """The indexer's stores in one transaction."""

    events: EventStore
    collections: CollectionStore
    contents: ItemTexts
    vectors: VectorStore

    async def changes_after(self, position: IndexCursor) -> IndexingRound:
        """Return the next changes after a cursor."""
        events = await self.events.after(position.seq, None, EVENT_BATCH_SIZE)
        # Events may have been deleted with their session, so the last one left may not be the last of the log.
        return await self._process(position, events, end=await self.events.last_seq())

    async def changes_of(self, seqs: Sequence[int], position: IndexCursor) -> IndexingRound:
        """Return the changes of a few events anywhere in the log; the cursor stays. ``more``: these are not all."""
        changes: dict[IndexItem, ItemChange | None] = {}
        texts = 0
        for event in await self.events.numbered(seqs):
            for item in await self._changed_items(event, IndexCursor()):
                if texts >= TEXT_BATCH_SIZE:
                    return IndexingRound(_needed(changes), position, more=True)
                if item not in changes:
                    changes[item] = change = await self._change(item, None, event.principal_id)
                    texts += change.texts if change else 0
        return IndexingRound(_needed(changes), position, more=False)

    async def changes_before(self, position: IndexCursor) -> IndexingRound:
        """Return the next changes before a cursor, newest first; after the first event, those that need no events.

        These are of persistent memory and, if retention has deleted events, of everything else.
        """
        if position.seq == 0:
            return await self._sweep_places(position)
        events = await self.events.before(position.seq, EVENT_BATCH_SIZE)
        found = await self._process(position, events, end=0, skip_memory=True)
        return found._replace(more=True)

    async def put(self, written: Sequence[PreparedChange], model: str) -> Unembedded:
        """Write the chunks of changes, except of items that changed again meanwhile: those have another event.

        Items deleted with their session have none, so the collection is locked before the check, as by the deletion.
        Return the new chunks that lack a vector of the model.
        """
        without = Unembedded({}, {})
        for collection in LOCK_ORDER:
            in_collection = [each for each in written if each.change.item.collection == collection]
            if in_collection:
                await self.collections.lock(collection)
                unchanged = [each for each in in_collection if await self._is_unchanged(each.change)]
                await self._put(collection, unchanged, model, without)
        return without

    async def _put(self, collection: str, written: Sequence[PreparedChange], model: str, without: Unembedded) -> None:
        chunks = [chunk for each in written for chunk in each.chunks]
        vectors: dict[str, list[bytes | None]] = {}
        for each in written:
            for name, of_model in each.vectors.items():
                vectors.setdefault(name, []).extend(of_model)
        if not vectors:
            vectors[model] = await self._cached_vectors(model, chunks)
        numbers = await self.collections.add(collection, chunks, vectors)
        # Afterwards: an unchanged text keeps its cached vector, which is deleted with the last chunk that uses it.
        await self.collections.remove(collection, [number for each in written for number in each.outdated])
        writers = (each.change.writer for each in written for _ in each.chunks)
        for number, chunk, vector, writer in zip(numbers, chunks, vectors[model], writers, strict=True):
            if vector is None and chunk.semantic:
                without.first.setdefault(collection, number)
                if writer is not None:
                    without.own.setdefault(writer, {})[collection] = number

    async def _cached_vectors(self, model: str, chunks: Sequence[NewChunk]) -> list[bytes | None]:
        """Return the vectors of texts that the tenant has already; None for the others."""
        cached = await self.vectors.find(model, list({chunk.digest for chunk in chunks if chunk.semantic}))
        known = (cached.get(chunk.digest) if chunk.semantic else None for chunk in chunks)
        return [None if each is None else each.vector for each in known]

    async def _is_unchanged(self, change: ItemChange) -> bool:
        return await self.contents.read(change.item) == change.text

    async def _process(
        self, position: IndexCursor, events: Sequence[StoredEvent], *, end: int, skip_memory: bool = False
    ) -> IndexingRound:
        if events and events[0].event.type == IMPORTED:
            return await self._sweep(position, events[0])
        changes: dict[IndexItem, ItemChange | None] = {}
        seq, texts = position.seq, 0
        for each in events:
            if each.event.type == IMPORTED or texts >= TEXT_BATCH_SIZE:
                return IndexingRound(_needed(changes), position.at(seq), more=True)
            items = [] if skip_memory and changed_memory(each) else await self._changed_items(each, position)
            for index, item in enumerate(items):
                if texts >= TEXT_BATCH_SIZE and index:
                    # The others follow in the next round.
                    progress = _sweep_after(each.event.seq, items[index - 1])
                    return IndexingRound(_needed(changes), position.at(seq, progress), more=True)
                if item not in changes:
                    changes[item] = change = await self._change(item, position.reindex, each.principal_id)
                    texts += change.texts if change else 0
            seq = each.event.seq
        more = len(events) == EVENT_BATCH_SIZE
        return IndexingRound(_needed(changes), position.at(seq if more else end), more=more)

    async def _changed_items(self, stored: StoredEvent, position: IndexCursor) -> Sequence[IndexItem]:
        """Return the items that an event changes; of a window, those after the progress within it."""
        window = changed_window(stored)
        if window is not None:
            sweep = position.sweep
            after = sweep.after_event if sweep is not None and sweep.imported == stored.event.seq else 0
            numbers = await self._changed_numbers(window, position.reindex)
            return [IndexItem("event", window.place, str(number)) for number in numbers if number > after]
        memory = changed_memory(stored)
        if memory is not None:
            sweep = position.sweep
            after_item = sweep.after_item if sweep is not None and sweep.imported == stored.event.seq else ""
            items = await self._changed_entries(memory)
            return [IndexItem("memory", memory.place, item) for item in sorted(items) if item > after_item]
        item = changed_item(stored)
        if item is None and stored.event.type == REDACTED:
            item = await self._redacted_event(stored.event.subject)
        return [] if item is None else [item]

    async def _changed_numbers(self, window: ChangedWindow, reindex: ReindexRange | None) -> Sequence[int]:
        """Return the numbers of the events whose chunks may be outdated, in order."""
        if window.first is not None and window.last is not None:
            return range(window.first, window.last + 1)
        live = await self.contents.live_versions(window.place)
        indexed = await self.collections.items_of(WINDOWS, window.place)
        if reindex is not None:
            return sorted({*live, *map(int, indexed)})
        outdated = (number for number, version in live.items() if indexed.get(str(number)) != {version})
        return sorted({*outdated, *(int(item) for item in indexed if int(item) not in live)})

    async def _changed_entries(self, changed: ChangedMemory) -> Iterable[str]:
        """Return the items of a persistent memory whose chunks may be outdated."""
        memory = await MemoryVersion.find(self.contents.contexts, changed.place)
        if memory is not None and changed.line_id is not None:
            if changed.line_id != memory.line.line_id:
                # Another branch than the one that is read.
                return []
            lines = self.contents.contexts.lines
            addresses = await changed_addresses(lines, changed.line_id, changed.after, changed.upto)
            if addresses is not None:
                return map(item_of_entry, addresses)
        return await self._outdated_entries(changed.place, memory)

    async def _outdated_entries(
        self, place: str, memory: MemoryVersion | None, reindex: ReindexRange | None = None
    ) -> Iterable[str]:
        """Return the items of a persistent memory that differ from the index; all if it is reindexed."""
        entries = [] if memory is None else await memory.all_entries()
        live = {item_of_entry(entry.place): version_of_entry(entry.version) for entry in entries}
        indexed = await self.collections.items_of(MEMORY, place)
        if reindex is not None:
            return {*live, *indexed}
        return {item for item in {*live, *indexed} if indexed.get(item) != {live.get(item)}}

    async def _sweep_places(self, position: IndexCursor) -> IndexingRound:
        """Process the next line: its events may have been deleted with their sessions, or by retention."""
        sweep = position.sweep or Sweep(0)
        is_inside = sweep.is_inside or bool(sweep.after_item)
        place = sweep.after_place if is_inside else await self._next_place(sweep.after_place)
        if place is None:
            return IndexingRound([], position.at(0), more=False)
        if kind_of(place).composite:
            return await self._sweep_memory(position, place, sweep)
        return await self._sweep_line(
            position, place, sweep if is_inside else Sweep(0, after_place=place, is_inside=True)
        )

    async def _sweep_line(self, position: IndexCursor, place: str, sweep: Sweep) -> IndexingRound:
        """Process the next items of a board with its messages, a private memory or a window."""
        changes, texts = [], 0
        progress = _next_stage(sweep) if prefix_of(place) == _BOARD else None
        for item, after in await self._steps_of_line(place, sweep):
            if texts >= TEXT_BATCH_SIZE:
                break
            change, progress = await self._change(item, position.reindex), after
            changes += [] if change is None else [change]
            texts += change.texts if change else 0
        return IndexingRound(changes, position.at(0, progress or Sweep(0, after_place=place)), more=True)

    async def _steps_of_line(self, place: str, sweep: Sweep) -> list[tuple[IndexItem, Sweep]]:
        """Return the next items of a line, each with the progress after it."""
        if prefix_of(place) == _BOARD:
            return await self._steps(sweep, session_of(place))
        memory = scope_of(place)
        if memory is not None:
            keys = await self.contents.memory_keys_after(memory, sweep.after_key, TEXT_BATCH_SIZE)
            items = [IndexItem("memory", memory.owner, str(MemoryKey(memory.session_id, key))) for key in keys]
            return [(item, structs.replace(sweep, after_key=key)) for item, key in zip(items, keys, strict=True)]
        window = window_place(place)
        numbers = sorted(number for number in await self.contents.live_versions(window) if number > sweep.after_event)
        return [
            (IndexItem("event", window, str(number)), structs.replace(sweep, after_event=number))
            for number in numbers[:TEXT_BATCH_SIZE]
        ]

    async def _sweep_memory(self, position: IndexCursor, place: str, sweep: Sweep) -> IndexingRound:
        """Process the persistent memory of one owner."""
        memory = await MemoryVersion.find(self.contents.contexts, place)
        items = await self._outdated_entries(place, memory, position.reindex)
        changes: list[ItemChange] = []
        texts = 0
        for item in sorted(item for item in items if item > sweep.after_item):
            if texts >= TEXT_BATCH_SIZE:
                reached = Sweep(0, after_place=place, after_item=changes[-1].item.item)
                return IndexingRound(changes, position.at(0, reached), more=True)
            change = await self._change(IndexItem("memory", place, item), position.reindex)
            changes += [] if change is None else [change]
            texts += change.texts if change else 0
        return IndexingRound(changes, position.at(0, Sweep(0, after_place=place)), more=True)

    async def _next_place(self, after: str) -> str | None:
        """Return the next line to sweep: of persistent memory, and of everything else once events were deleted."""
        prefixes = [kind.prefix for kind in line_kinds().values() if kind.composite]
        others = _SWEPT_BY_LINE if await self.events.pruned_seq() else ()
        lines = self.contents.contexts.lines
        return next(iter(await lines.roots([*prefixes, *others], after, 1, nested=others)), None)

    async def _redacted_event(self, item_id: str) -> IndexItem | None:
        version = VersionId.parse(item_id)
        if version is None or not is_window(version.line_id):
            return None
        place = window_place(version.line_id)
        number = await self.contents.number_of_event(place, version.key)
        return None if number is None else IndexItem("event", place, str(number))

    async def _sweep(self, position: IndexCursor, imported: StoredEvent) -> IndexingRound:
        """Process an imported session, which has no events of its items."""
        started, number = position.sweep, imported.event.seq
        sweep = started if started is not None and started.imported == number else Sweep(number)
        steps = await self._steps(sweep, imported.event.session_id or "")
        changes, texts, progress = [], 0, _next_stage(sweep)
        for item, after in steps:
            if texts >= TEXT_BATCH_SIZE:
                break
            change, progress = await self._change(item, position.reindex), after
            changes += [] if change is None else [change]
            texts += change.texts if change else 0
        return IndexingRound(changes, position.at(number if progress is None else position.seq, progress), more=True)

    async def _steps(self, sweep: Sweep, session_id: str) -> list[tuple[IndexItem, Sweep]]:
        """Return the next items of a session, each with the progress after it."""
        if sweep.after_message is None:
            keys = await self.contents.entries.keys_after(session_id, sweep.after_key, TEXT_BATCH_SIZE)
            return [
                (IndexItem("board", session_id, item_of_key(key)), structs.replace(sweep, after_key=key))
                for key in keys
            ]
        part = TranscriptRange(limit=TEXT_BATCH_SIZE, after=sweep.after_message)
        numbers = [message.message_id for message in await self.contents.messages.read_any(session_id, part)]
        return [
            (IndexItem("message", session_id, str(number)), structs.replace(sweep, after_message=number))
            for number in numbers
        ]

    async def _change(
        self, item: IndexItem, reindex: ReindexRange | None, writer: str | None = None
    ) -> ItemChange | None:
        """Return the change that an item needs; None if its chunks are current."""
        text = await self.contents.read(item)
        indexed = await self.collections.of_item(item.collection, item.place, item.item)
        is_current = _is_current(indexed, text)
        if is_current and not _is_old(indexed, reindex):
            return None
        return ItemChange(item, text, [chunk.number for chunk in indexed], is_current, writer)


def _sweep_after(seq: int, item: IndexItem) -> Sweep:
    """Return the progress within an event of many items after one of them."""
    if item.source == "event":
        return Sweep(seq, after_event=int(item.item))
    return Sweep(seq, after_item=item.item)


def _next_stage(sweep: Sweep) -> Sweep | None:
    """Return the next stage: messages after the board, then nothing."""
    return structs.replace(sweep, after_message=0) if sweep.after_message is None else None


def _is_current(indexed: Sequence[Chunk], text: ItemText | None) -> bool:
    if text is None:
        return not indexed
    current = (text.version, text.scope, text.pinned)
    return bool(indexed) and all((chunk.version, chunk.scope, chunk.pinned) == current for chunk in indexed)


def _is_old(indexed: Sequence[Chunk], reindex: ReindexRange | None) -> bool:
    return reindex is not None and any(reindex.replaces(chunk.collection, chunk.number) for chunk in indexed)


def _needed(changes: Mapping[IndexItem, ItemChange | None]) -> list[ItemChange]:
    return [change for change in changes.values() if change is not None]
