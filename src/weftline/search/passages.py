"""Reads search results from their stores, as the caller may read them now.

A replica may lag, so each result is checked again: it must still exist in this version, be readable by this caller and
not be redacted.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from weftline.history.item_ids import DocumentName, MessageItemId, VersionId, document_uri, is_number
from weftline.history.line_kinds import line_of
from weftline.indexing.collections import Chunk, MemoryKey, WindowPlace, key_of_item
from weftline.knowledge.documents import decode_text
from weftline.records.model import ContextSourceRef
from weftline.records.refs import TextPosition
from weftline.records.selectors import passage_digest
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.safety.trust.model import Trust, TrustLabel, default_trust
from weftline.search.items import (
    event_numbered,
    events_by_number,
    is_held_from,
    is_searchable,
    is_window,
    live_events,
    open_place,
    text_of_entry,
    text_of_event,
    text_of_memory,
    text_of_message,
    version_of,
    version_of_event,
    window_place,
)
from weftline.search.persistent_memory import (
    is_persistent,
    memory_place,
    own_place,
    readable_entries,
    readable_places,
    text_of_entry_id,
    version_id,
    version_of_entry,
)
from weftline.search.pulled_memory import held_memory
from weftline.search.scope import visible_domain
from weftline.state.memory.model import MemoryScope, scope_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from weftline.history.model import Version
    from weftline.records.vocabulary import OmissionReason
    from weftline.search.persistent_memory import SearchStores
    from weftline.search.pulled_memory import PulledMemory
    from weftline.search.scope import RequestedScope
    from weftline.sessions.messages.model import Message
    from weftline.state.agent_context.sql import PinnedContext
    from weftline.windows.model import WindowEvent


_SOURCE_KINDS = {
    "document": "weftline_document",
    "message": "weftline_transcript",
    "board": "weftline_board",
    "memory": "weftline_memory",
    "event": "weftline_window",
}
# Later versions of an entry that are looked at.
_MAX_LABELS = 100
# Entries of persistent memory, which are found as memory.
_PERSISTENT_KIND = "weftline_persistent_memory"


class ChunkPassage(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that the caller may read. ``uri`` names its source with the version.

    ``author`` is a participant name, "" for documents; ``label`` is that of the item, if it has one.
    """

    chunk: Chunk
    text: str
    title: str
    uri: str
    message_id: int | None = None
    key: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    event_id: str | None = None
    memory_type: str | None = None
    workflow_id: str | None = None
    owner: str | None = None
    author: str = ""
    label: TrustLabel | None = None

    @property
    def chunk_id(self) -> str:
        return self.chunk.chunk_id

    @property
    def trust(self) -> Trust | None:
        """Return the trust of its item where it is not what its source has by default."""
        label = self.label
        return None if label is None or label.trust is default_trust(label.source) else label.trust

    @property
    def handle(self) -> str:
        """Return the short name that opens the passage: its chunk id, or its item id if it is in no collection."""
        return self.chunk_id if self.chunk.number > 0 else self.uri


def ref_to(passage: ChunkPassage) -> ContextSourceRef:
    """Return a reference that finds a passage again by its position and digest, without repeating its text."""
    chunk = passage.chunk
    return ContextSourceRef(
        schema_version=SCHEMA_VERSION,
        source_id=passage.handle,
        uri=passage.uri,
        source_kind=_PERSISTENT_KIND if passage.memory_type is not None else _SOURCE_KINDS[chunk.source],
        selector=TextPosition(start=chunk.start, end=chunk.end),
        metadata={"weftline": {"passage_digest": passage_digest(passage.text)}},
    )


async def read_numbers(
    passages: Iterable[tuple[str, int]], pulled: PulledMemory | None, stores: SearchStores
) -> dict[str, ChunkPassage]:
    """Return the readable passages of chunks, given as (collection, number), by chunk id.

    ``pulled`` is the memory of the session that is searched.
    """
    passages = list(passages)
    numbers = _by_collection(each for each in passages if each[1] > 0)
    chunks = [
        chunk for collection, batch in numbers.items() for chunk in await stores.collections.find(collection, batch)
    ]
    if pulled is None:
        return await read_chunks(chunks, stores)
    chunks += [pulled.chunks[number] for _, number in passages if number in pulled.chunks]
    return await read_chunks(chunks, stores, pulled.held)


async def read_handle(handle: str, filters: RequestedScope, stores: SearchStores) -> ChunkPassage | None:
    """Return the readable passage of a chunk id; None if there is none."""
    collection, _, number = handle.rpartition("/")
    if not (collection and is_number(number)):
        return None
    chunks = await stores.collections.find(collection, [int(number)])
    return (await read_chunks(chunks, stores, await held_memory(filters, stores))).get(handle)


async def readable_chunks(chunks: Iterable[tuple[str, int]], stores: SearchStores) -> set[tuple[str, int]]:
    """Return those chunks of documents that the caller may read, without reading their texts."""
    readable: set[tuple[str, int]] = set()
    for collection, numbers in _by_collection(chunks).items():
        versions = await stores.collections.versions_of(collection, numbers)
        current: dict[str, dict[str, int]] = {}
        for domain in {place for place, *_ in versions.values()}:
            if await visible_domain(domain, stores) is not None:
                items = {item for place, item, _ in versions.values() if place == domain}
                documents = await stores.documents.find_all(domain, items)
                current[domain] = {item: document.indexed_version for item, document in documents.items()}
        readable |= {
            (collection, number)
            for number, (place, item, version) in versions.items()
            if current.get(place, {}).get(item) == version
        }
    return readable


async def read_siblings(passages: Iterable[tuple[str, int]], stores: SearchStores) -> set[tuple[str, int]]:
    """Return all chunks of the same versions: if one of them is unreadable, so are the others."""
    numbers = _by_collection(passages)
    versions = {
        (collection, chunk.place, chunk.item, chunk.version)
        for collection, batch in numbers.items()
        for chunk in await stores.collections.find(collection, batch)
    }
    return {(each[0], number) for each in versions for number in await stores.collections.numbers_of(*each)}


def _by_collection(passages: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for collection, number in passages:
        numbers[collection].append(number)
    return numbers


async def read_chunks(
    chunks: Sequence[Chunk], stores: SearchStores, held: PinnedContext | None = None
) -> dict[str, ChunkPassage]:
    """Return the readable passages of chunks, by chunk id; of memory, those in the snapshot of a session."""
    passages = await not_redacted(await read_with_redacted(chunks, stores, held), stores)
    return {each.chunk_id: each for each in passages}


async def read_with_redacted(
    chunks: Sequence[Chunk], stores: SearchStores, held: PinnedContext | None = None
) -> list[ChunkPassage]:
    """Return the passages that the caller may read if they are not redacted."""
    by_place: defaultdict[tuple[str, str], list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        by_place[chunk.source, chunk.place].append(chunk)
    passages = []
    for (source, place), batch in by_place.items():
        if source == "memory" and is_persistent(place):
            passages += await _persistent_memories(place, batch, stores, held)
        else:
            passages += await _READERS[source](place, batch, stores)
    return passages


async def not_redacted(passages: Sequence[ChunkPassage], stores: SearchStores) -> list[ChunkPassage]:
    """Return the passages without redaction: redacted content must not be found by its words either."""
    items = {each.uri for each in passages if each.chunk.source != "document"}
    redacted = await stores.records.redactions(sorted(items))
    return [each for each in passages if each.uri not in redacted]


async def _documents(domain: str, chunks: Sequence[Chunk], stores: SearchStores) -> list[ChunkPassage]:
    if await visible_domain(domain, stores) is None:
        return []
    passages = []
    documents = await stores.documents.find_all(domain, {chunk.item for chunk in chunks})
    uris = {item: document_uri(domain, item, document.indexed_version) for item, document in documents.items()}
    for chunk in chunks:
        document = documents.get(chunk.item)
        if document is None or chunk.version != document.indexed_version:
            continue
        title = document.indexed_title or document.document_id
        passages.append(
            ChunkPassage(chunk=chunk, text=chunk.text, title=title, uri=uris[chunk.item], label=document.trust)
        )
    return passages


def is_document_uri(uri: str) -> bool:
    return DocumentName.parse(uri) is not None


def is_event_uri(uri: str) -> bool:
    """Return whether a URI is the item id of a window event."""
    version = VersionId.parse(uri)
    return version is not None and is_window(version.line_id)


def is_memory_ref(ref: ContextSourceRef) -> bool:
    """Return whether a ref is to a passage of persistent memory: its positions count in the text that was indexed."""
    version = VersionId.parse(ref.uri)
    return ref.source_kind == _PERSISTENT_KIND and version is not None and memory_place(version.line_id) is not None


async def text_at(uri: str, stores: SearchStores) -> str | None:
    """Return the current text of a document, memory key or window event; None if it is not readable."""
    document = DocumentName.parse(uri)
    if document is not None:
        return await _text_of_document(*document, stores)
    version = VersionId.parse(uri)
    if version is not None and is_window(version.line_id):
        return await _text_of_event(version, stores)
    if version is not None and memory_place(version.line_id) is not None:
        return await text_of_entry_id(version, stores)
    return None if version is None else await _text_of_memory(version, stores)


async def _text_of_memory(version: VersionId, stores: SearchStores) -> str | None:
    scope = scope_of(version.line_id)
    if scope is None or scope.owner != stores.actor.principal_id:
        return None
    if scope.session_id is not None and not await admits(scope.session_id, stores):
        return None
    found = await stores.memories.read(scope, version.key)
    if found is None or not found.entry.is_live(stores.now) or await stores.records.redactions([str(version)]):
        return None
    return text_of_memory(found)


async def _text_of_event(version: VersionId, stores: SearchStores) -> str | None:
    events = await live_events(window_place(version.line_id), stores)
    found = (event for event in events if event.event_id == version.key and is_searchable(event))
    return next(map(text_of_event, found), None)


async def _text_of_document(domain: str, document_id: str, stores: SearchStores) -> str | None:
    if await visible_domain(domain, stores) is None:
        return None
    document = await stores.documents.find(domain, document_id)
    content = (
        None if document is None else await stores.documents.content(domain, document_id, document.indexed_content)
    )
    return None if content is None else decode_text(*content)


async def _messages(session_id: str, chunks: Sequence[Chunk], stores: SearchStores) -> list[ChunkPassage]:
    numbers = {int(chunk.item) for chunk in chunks}
    messages = {str(each.message_id): each for each in await visible_messages(session_id, numbers, stores)}
    return [_of_message(session_id, messages[chunk.item], chunk) for chunk in chunks if chunk.item in messages]


async def visible_messages(session_id: str, numbers: Iterable[int], stores: SearchStores) -> list[Message]:
    """Return the messages with these ids that the caller may read."""
    if not await admits(session_id, stores):
        return []
    passages = await stores.messages.find_several(session_id, sorted(numbers))
    return [message for message in passages if message.visible_to(stores.actor)]


async def admits(session_id: str, stores: SearchStores) -> bool:
    """Return whether the caller may read a session."""
    session = await stores.sessions.find(session_id)
    return session is not None and session.admits(stores.actor)


def _of_message(session_id: str, message: Message, chunk: Chunk) -> ChunkPassage:
    return ChunkPassage(
        chunk=chunk,
        text=text_of_message(message)[chunk.start : chunk.end],
        title="",
        uri=str(MessageItemId(session_id, message.message_id)),
        message_id=message.message_id,
        session_id=session_id,
        author=message.author or "",
        label=message.trust,
    )


async def _entries(session_id: str, chunks: Sequence[Chunk], stores: SearchStores) -> list[ChunkPassage]:
    if not await admits(session_id, stores):
        return []
    keys = sorted({key_of_item(chunk.item) for chunk in chunks})
    entries = {each.entry.key: each for each in await stores.entries.read(session_id, keys)}
    passages = []
    for chunk in chunks:
        found = entries.get(key_of_item(chunk.item))
        if found is None or version_of(found.entry) != chunk.version:
            continue
        entry = found.entry
        if entry.lives_at(stores.now) and entry.readable(stores.actor):
            text = text_of_entry(found)[chunk.start : chunk.end]
            uri = str(VersionId(line_of(session_id), entry.key, entry.incarnation, entry.version))
            passages.append(
                ChunkPassage(
                    chunk=chunk,
                    text=text,
                    title=entry.key,
                    uri=uri,
                    key=entry.key,
                    session_id=session_id,
                    author=entry.written_by,
                    label=entry.trust,
                )
            )
    return passages


async def _memories(owner: str, chunks: Sequence[Chunk], stores: SearchStores) -> list[ChunkPassage]:
    if owner != stores.actor.principal_id:
        return []
    return [passage for chunk in chunks if (passage := await _memory(owner, chunk, stores)) is not None]


async def _memory(owner: str, chunk: Chunk, stores: SearchStores) -> ChunkPassage | None:
    name = MemoryKey.parse(chunk.item)
    if name.session_id is not None and not await admits(name.session_id, stores):
        return None
    scope = MemoryScope(owner, name.session_id)
    found = await stores.memories.read(scope, name.key)
    if found is None or not found.entry.is_live(stores.now) or version_of(found.entry) != chunk.version:
        return None
    return ChunkPassage(
        chunk=chunk,
        text=text_of_memory(found)[chunk.start : chunk.end],
        title=name.key,
        uri=str(VersionId(scope.line_id, name.key, found.entry.incarnation, found.entry.version)),
        key=name.key,
        session_id=name.session_id,
        author=stores.actor.participant,
        label=found.entry.trust,
    )


async def _persistent_memories(
    place: str, chunks: Sequence[Chunk], stores: SearchStores, held: PinnedContext | None
) -> list[ChunkPassage]:
    found = await readable_entries(place, sorted({chunk.item for chunk in chunks}), stores, held)
    if found is None:
        return []
    memory, entries = found
    ids = {item: await version_id(memory, entry) for item, entry in entries.items()}
    # Those that are in no collection have a later version, which may be the same value with another label.
    replaced = {chunk.item for chunk in chunks if chunk.number < 0} & entries.keys()
    labels = {item: await _latest_label(ids[item], entries[item].version, stores) for item in replaced}
    own = place == own_place(stores.actor.principal_id)
    return [
        ChunkPassage(
            chunk=chunk,
            text=chunk.text,
            title=entry.place.key,
            uri=str(ids[chunk.item]),
            key=entry.place.key,
            memory_type=entry.place.memory_type,
            workflow_id=entry.place.workflow_id,
            owner=None if own else place,
            author=entry.version.author,
            label=labels.get(chunk.item, entry.version.change.meta.trust),
        )
        for chunk in chunks
        if (entry := entries.get(chunk.item)) is not None and version_of_entry(entry.version) == chunk.version
    ]


async def _latest_label(name: VersionId, version: Version, stores: SearchStores) -> TrustLabel | None:
    """Return the label that the value of an old version got last: it may have been flagged, or approved, since."""
    later = await stores.contexts.lines.versions(name.line_id, name.key, name.incarnation, _MAX_LABELS)
    same = (each for each in later if each.seq >= version.seq and each.change.blob_hash == version.change.blob_hash)
    return next((each.change.meta.trust for each in same), version.change.meta.trust)


async def _events(place: str, chunks: Sequence[Chunk], stores: SearchStores) -> list[ChunkPassage]:
    events = events_by_number(await live_events(place, stores))
    passages = []
    for chunk in chunks:
        event = events.get(int(chunk.item))
        if event is not None and is_searchable(event) and version_of_event(event) == chunk.version:
            passages.append(of_event(place, event, chunk))
    return passages


def of_event(place: str, event: WindowEvent, chunk: Chunk) -> ChunkPassage:
    """Return a part of a window event as a passage."""
    session_id, agent_id = WindowPlace.parse(place)
    return ChunkPassage(
        chunk=chunk,
        text=text_of_event(event)[chunk.start : chunk.end],
        title="",
        uri=event.item_id,
        session_id=session_id,
        agent_id=agent_id,
        event_id=event.event_id,
        author=event.author,
        label=event.trust,
    )


_READERS: dict[str, Callable[[str, Sequence[Chunk], SearchStores], Awaitable[list[ChunkPassage]]]] = {
    "document": _documents,
    "message": _messages,
    "board": _entries,
    "memory": _memories,
    "event": _events,
}


# Why chunks that were candidates of a search are not readable any more.


async def unreadable_reasons(
    keys: Collection[tuple[str, int]], held: PinnedContext | None, stores: SearchStores
) -> dict[tuple[str, int], OmissionReason]:
    """Return the reason of each chunk, given as (collection, number); ``held`` is the snapshot that was searched.

    A redacted item is a policy block; one that was replaced, deleted or has expired is a stale source; anything else
    that the caller may not read is a missing permission.
    """
    reasons: dict[tuple[str, int], OmissionReason] = dict.fromkeys(keys, "stale_source")
    for collection in sorted({collection for collection, _ in keys}):
        numbers = sorted(number for each, number in keys if each == collection)
        for chunk in await stores.collections.find(collection, numbers):
            reasons[collection, chunk.number] = await _reason(chunk, held, stores)
    return reasons


async def _reason(chunk: Chunk, held: PinnedContext | None, stores: SearchStores) -> OmissionReason:
    if not await _place_is_readable(chunk, stores):
        return "missing_permission"
    if await read_with_redacted([chunk], stores, held) or await _is_hidden_event(chunk, stores):
        return "policy_block"
    return "missing_permission" if await _is_current(chunk, stores) else "stale_source"


async def _place_is_readable(chunk: Chunk, stores: SearchStores) -> bool:
    match chunk.source:
        case "document":
            return await visible_domain(chunk.place, stores) is not None
        case "memory" if is_persistent(chunk.place):
            return chunk.place in readable_places(stores.actor)
        case "memory":
            session_id = MemoryKey.parse(chunk.item).session_id
            return session_id is None or await admits(session_id, stores)
        case "event":
            return await open_place(chunk.place, stores) is not None
        case _:
            return await admits(chunk.place, stores)


async def _is_hidden_event(chunk: Chunk, stores: SearchStores) -> bool:
    """Return whether it is an event that is redacted, or held from the caller."""
    window = await open_place(chunk.place, stores) if chunk.source == "event" else None
    if window is None:
        return False
    event = event_numbered(await stores.windows.own_events(window), int(chunk.item))
    return event is not None and (event.redacted or is_held_from(event, stores.actor))


async def _is_current(chunk: Chunk, stores: SearchStores) -> bool:
    """Return whether the item still exists in this version, readable or not."""
    match chunk.source:
        case "message":
            return bool(await stores.messages.find_several(chunk.place, [int(chunk.item)]))
        case "board":
            found = await stores.entries.read(chunk.place, [key_of_item(chunk.item)])
            entries = (each.entry for each in found)
            return any(each.lives_at(stores.now) and version_of(each) == chunk.version for each in entries)
        case _:
            return False
