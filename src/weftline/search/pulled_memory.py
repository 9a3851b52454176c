"""The memory of a session in its searches: the entries of its snapshot, whatever was written since.

The index has the current version of each memory. Where the snapshot is older, or not indexed yet, the chunks of entries
that differ are left out, and those of the snapshot are searched beside the index: read from history, chunked and
embedded for the caller that needs them. They are in no collection, so that old versions cost the searches of others
nothing.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.history.model import Head, Point
from weftline.indexing.collections import MEMORY, Chunk, IndexedChunk
from weftline.indexing.embeddings import EmbedderUnavailable, TextRefused
from weftline.kernel.errors import WeftlineError
from weftline.kernel.thread_pools import SEARCH_THREADS, SHORT_THREADS
from weftline.search.persistent_memory import (
    content_of,
    entry_of_item,
    item_of_entry,
    own_place,
    readable_places,
    text_of_value,
    version_id,
)
from weftline.search.session_cursor import IndexItem
from weftline.search.session_item_text import chunks_of, text_of_persisted
from weftline.state.agent_context.memory_version import MemoryVersion, addresses_apart, changed_addresses
from weftline.state.agent_context.model import ContextLine
from weftline.state.agent_context.service import ContextAt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.history.object_storage import Staging
    from weftline.indexing.collections import NewChunk
    from weftline.indexing.embeddings import Embeddings
    from weftline.kernel.identity import Actor
    from weftline.kernel.ports import CacheKey, ValueCache
    from weftline.search.persistent_memory import SearchStores
    from weftline.search.scope import RequestedScope
    from weftline.search.session_item_text import ItemText
    from weftline.state.agent_context.sql import PinnedContext
    from weftline.state.agent_context.views import PersistedEntry

# Texts that one search embeds, and how long it waits for that: the others are found by their words until the next
# searches embed them.
_MAX_EMBEDDED, _MAX_EMBED_SECONDS = 32, 1.0
_COLUMNS = tuple(name for name in IndexedChunk.__struct_fields__ if name != "vector")
_BYTES_PER_CHARACTER, _BYTES_PER_CHUNK = 4, 2_000


class PulledEntry(NamedTuple):
    """An entry of a snapshot that the index has in another version, or not at all."""

    item: IndexItem
    text: ItemText

    @property
    def place(self) -> tuple[str, str, int]:
        return self.item.place, self.item.item, self.text.version


class PulledMemory(NamedTuple):
    """The memory of a session. ``entries`` are searched beside the index, without its chunks ``replaced``.

    ``missing`` are places of memory that the snapshot has none of. ``chunks`` are those of the entries, by number; the
    numbers are negative, so that they are not those of stored chunks.
    """

    held: PinnedContext
    entries: tuple[PulledEntry, ...] = ()
    replaced: frozenset[int] = frozenset()
    missing: frozenset[str] = frozenset()
    chunks: Mapping[int, Chunk] = {}


async def held_memory(filters: RequestedScope, stores: SearchStores) -> PinnedContext | None:
    """Return the snapshot of the session that is searched; None without a session, or if it has none yet."""
    session_id = filters.session_id or stores.actor.bound_session
    if filters.held is not None or session_id is None:
        return filters.held
    return await stores.contexts.snapshots.find(session_id, stores.actor.principal_id)


async def pulled_memory(
    filters: RequestedScope, unindexed: Mapping[str, int], stores: SearchStores
) -> PulledMemory | None:
    """Compare the snapshot of a session with what the index has; None if memory is searched as it is now.

    ``unindexed``: of each root with changes that are not indexed yet, the version before them.
    """
    held = await held_memory(filters, stores) if "memory" in filters.searched_sources else None
    if held is None:
        return None
    found = PulledMemory(held)
    for place, head in (await _indexed_heads(stores)).items():
        found = await _with_place(found, place, head, unindexed.get(head.line_id, head.seq), stores)
    in_scope = (
        entry for entry in found.entries if filters.includes_key(entry.item.place, entry_of_item(entry.item.item).key)
    )
    return found._replace(entries=tuple(in_scope))


async def _indexed_heads(stores: SearchStores) -> dict[str, Head]:
    """Return the heads of the memories that the caller may read, on the branch that is indexed, by place."""
    own = own_place(stores.actor.principal_id)
    lines = {place: place for place in sorted(readable_places(stores.actor))}
    switch = await stores.contexts.checkouts.of(own, stores.actor.principal_id)
    if switch is not None:
        lines[own] = ContextLine.parse(own)._replace(branch=switch.branch).line_id
    heads = await stores.contexts.lines.heads([*lines.values()])
    if switch is not None and switch.gone:
        heads = {line: head for line, head in heads.items() if line != lines[own]}
    return {place: heads.get(line) or Head.of_new_line(line) for place, line in lines.items()}


async def _with_place(
    found: PulledMemory, place: str, head: Head, indexed_seq: int, stores: SearchStores
) -> PulledMemory:
    """Add the entries of a memory that changed between the snapshot, what is indexed for sure, and its head."""
    at = Point(head.line_id, head.seq, head.hash)
    shared = found.held.shared_version(place)
    if at in (None if shared is None else shared.point, found.held.held) and indexed_seq >= head.seq:
        return found
    contexts = stores.contexts
    pinned = await MemoryVersion.pinned(contexts, found.held, place)
    if pinned is None:
        return found._replace(missing=found.missing | {place})
    now = await ContextAt(contexts.lines, at).parts()
    changed = await addresses_apart(contexts.lines, await pinned.version.parts(), now)
    if indexed_seq < head.seq:
        changed += await changed_addresses(contexts.lines, head.line_id, indexed_seq, head.seq) or []
    changed = [*dict.fromkeys(changed)]
    if not changed:
        return found
    entries = await _entries(place, pinned, await pinned.some_entries(changed), stores)
    replaced = await stores.collections.numbers_of_items(MEMORY, place, [*map(item_of_entry, changed)])
    return found._replace(entries=found.entries + entries, replaced=found.replaced.union(replaced))


async def _entries(
    place: str, memory: MemoryVersion, entries: Sequence[PersistedEntry], stores: SearchStores
) -> tuple[PulledEntry, ...]:
    """Return the texts of entries: none that was redacted, forgotten or pruned since."""
    names = {str(await version_id(memory, entry)): entry for entry in entries}
    redacted = await stores.records.redactions(sorted(names))
    live = [entry for name, entry in names.items() if name not in redacted]
    values = await stores.contexts.snapshots.values(
        entry.version.change.blob_hash for entry in live if entry.version.change.blob_hash is not None
    )
    pinned = {pin.at.item for pin in await stores.contexts.pins.store.of_place(MEMORY, place)}
    found = []
    for entry in live:
        version = structs.replace(entry.version, value=values.get(entry.version.change.blob_hash or b""))
        content = content_of(version)
        if content is not None:
            item = item_of_entry(entry.place)
            text = text_of_persisted(entry, content, pinned=item in pinned)
            found.append(PulledEntry(IndexItem("memory", place, item), text))
    return tuple(found)


class PulledTexts(NamedTuple):
    """Chunks and embeds the entries of snapshots; keeps both for the caller's next searches: versions never change."""

    cache: ValueCache
    staging: Staging
    embeddings: Embeddings

    async def chunk(self, actor: Actor, memory: PulledMemory) -> PulledMemory:
        """Return the memory with the chunks of its entries."""
        chunks = [(chunk, entry) for entry in memory.entries for chunk in await self._chunks(actor, entry)]
        return memory._replace(chunks=await SEARCH_THREADS.run(_numbered, chunks) if chunks else {})

    async def indexed_chunks(self, actor: Actor, memory: PulledMemory, model: str | None) -> list[IndexedChunk]:
        """Return the columns that ranking needs, with the vectors of a model if there is one."""
        chunks = [*memory.chunks.values()]
        vectors = {} if model is None else await self._vectors(actor, chunks, model)
        return await SEARCH_THREADS.run(_indexed, chunks, vectors)

    async def _chunks(self, actor: Actor, entry: PulledEntry) -> Sequence[NewChunk]:
        key = self._key(actor, *entry.place)
        known: Sequence[NewChunk] | None = self.cache.get(key)
        if known is None:
            try:
                text = await self._with_value(actor, entry.text)
            except WeftlineError:
                # It cannot be read now: it is found by its key.
                return chunks_of(entry.item, structs.replace(entry.text, text=entry.text.heading))
            known = await SHORT_THREADS.run(chunks_of, entry.item, text)
            self.cache.put(key, known, sum(map(_weight, known)) + _BYTES_PER_CHUNK)
        return known

    async def _with_value(self, actor: Actor, text: ItemText) -> ItemText:
        """Return the text of an entry, fetched if it is in object storage."""
        if text.pointer is None:
            return text
        content = await self.staging.fetch(actor.tenant, text.pointer)
        return structs.replace(text, text=text_of_value(content, text.media_type) or text.heading)

    async def _vectors(self, actor: Actor, chunks: Sequence[Chunk], model: str) -> dict[bytes, bytes]:
        keys = {chunk.digest: self._key(actor, model, chunk.digest) for chunk in chunks if chunk.semantic}
        found = {digest: vector for digest, key in keys.items() if (vector := self.cache.get(key)) is not None}
        missing = (chunk for chunk in chunks if chunk.semantic and chunk.digest not in found)
        some = {chunk.digest: chunk.embedded for chunk in islice(missing, _MAX_EMBEDDED)}
        if some:
            try:
                async with asyncio.timeout(_MAX_EMBED_SECONDS):
                    made = await self.embeddings.of_unstored([*some.values()], model)
            except (EmbedderUnavailable, TextRefused, TimeoutError):
                return found
            for digest, row in zip(some, made.astype("<f2"), strict=True):
                found[digest] = row.tobytes()
                self.cache.put(keys[digest], found[digest], len(found[digest]) + _BYTES_PER_CHUNK)
        return found

    def _key(self, actor: Actor, *parts: str | bytes | int) -> CacheKey:
        # The caller is part of it: the time of a search tells nothing about the searches of others.
        return (actor.tenant, actor.principal_id, *parts)


def _numbered(chunks: Sequence[tuple[NewChunk, PulledEntry]]) -> dict[int, Chunk]:
    """Return chunks by numbers below zero. Whether they are pinned is no property of their version."""
    return {
        number: Chunk(**{**structs.asdict(chunk), "pinned": entry.text.pinned}, collection=MEMORY, number=number)
        for number, (chunk, entry) in enumerate(chunks, start=-len(chunks))
    }


def _indexed(chunks: Sequence[Chunk], vectors: Mapping[bytes, bytes]) -> list[IndexedChunk]:
    return [
        IndexedChunk(**{name: getattr(chunk, name) for name in _COLUMNS}, vector=vectors.get(chunk.digest))
        for chunk in chunks
    ]


def _weight(chunk: NewChunk) -> int:
    return _BYTES_PER_CHUNK + _BYTES_PER_CHARACTER * len(chunk.text)
