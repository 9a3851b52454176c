"""Reading what was found where it is kept, as the caller may read it now.

A copy that is searched may be behind, so nothing is shown because it was found: it must still be there, in this
version, for this caller, and not be redacted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from weft.capabilities.indexing.collections.model import Chunk
from weft.capabilities.knowledge.document_content import decode_text
from weft.capabilities.memory.model import MemoryScope, scope_of
from weft.capabilities.messages.model import audiences_of
from weft.capabilities.records.model import ContextSourceRef
from weft.capabilities.records.record_ids import MessageItemId, VersionId
from weft.capabilities.records.refs import TextPosition
from weft.capabilities.records.selectors import passage_digest
from weft.capabilities.records.vocabulary import SCHEMA_VERSION
from weft.capabilities.search.items import (
    MemoryKey,
    key_of_item,
    text_of_entry,
    text_of_memory,
    text_of_message,
    version_of,
)
from weft.capabilities.search.scope import visible_domain
from weft.capabilities.sessions.model import line_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from weft.capabilities.messages.model import Message
    from weft.capabilities.search.stores import SearchStores

_DOCUMENT = re.compile(r"knowledge://([^/?#]+)/([^?#]+)(?:\?version=[0-9]+)?\Z")
_KINDS = {
    "document": "weft_document",
    "message": "weft_transcript",
    "board": "weft_board",
    "memory": "weft_memory",
}


class ChunkPassage(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk as its caller may read it now. ``uri`` is where it is from, with the version that it is part of."""

    chunk: Chunk
    text: str
    title: str
    uri: str
    message_id: int | None = None
    key: str | None = None
    session_id: str | None = None

    @property
    def chunk_id(self) -> str:
        return self.chunk.chunk_id


def ref_to(passage: ChunkPassage) -> ContextSourceRef:
    """Return a reference to a passage: by its place and its digest, which find it again without repeating it."""
    chunk = passage.chunk
    return ContextSourceRef(
        schema_version=SCHEMA_VERSION,
        source_id=chunk.chunk_id,
        uri=passage.uri,
        source_kind=_KINDS[chunk.source],
        selector=TextPosition(start=chunk.start, end=chunk.end),
        metadata={"weft": {"passage_digest": passage_digest(passage.text)}},
    )


async def read_numbers(found: Iterable[tuple[str, int]], library: SearchStores) -> dict[str, ChunkPassage]:
    """Return, by their ids, those of the chunks that there are for the caller: named by collection and number."""
    numbers = _by_collection(found)
    chunks = [
        chunk for collection, some in numbers.items() for chunk in await library.collections.find(collection, some)
    ]
    return await read_chunks(chunks, library)


async def read_siblings(found: Iterable[tuple[str, int]], library: SearchStores) -> set[tuple[str, int]]:
    """Return all chunks of the versions that some are part of: whoever cannot read one can read none of them."""
    numbers = _by_collection(found)
    versions = {
        (collection, chunk.place, chunk.item, chunk.version)
        for collection, some in numbers.items()
        for chunk in await library.collections.find(collection, some)
    }
    return {(each[0], number) for each in versions for number in await library.collections.numbers_of(*each)}


def _by_collection(found: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for collection, number in found:
        numbers[collection].append(number)
    return numbers


async def read_chunks(chunks: Sequence[Chunk], library: SearchStores) -> dict[str, ChunkPassage]:
    """Return, by their ids, what chunks say: those that the caller may read now."""
    by_place: defaultdict[tuple[str, str], list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        by_place[chunk.source, chunk.place].append(chunk)
    found = []
    for (source, place), some in by_place.items():
        found += await _READERS[source](place, some, library)
    return {each.chunk_id: each for each in await not_redacted(found, library)}


async def not_redacted(passages: Sequence[ChunkPassage], library: SearchStores) -> list[ChunkPassage]:
    """Return the passages of which nothing was redacted: what must not be shown is not found by its words either."""
    items = {each.uri for each in passages if each.chunk.source != "document"}
    redacted = await library.records.redactions(sorted(items))
    return [each for each in passages if each.uri not in redacted]


async def _documents(domain: str, chunks: Sequence[Chunk], library: SearchStores) -> list[ChunkPassage]:
    if await visible_domain(domain, library) is None:
        return []
    found = []
    documents = await library.documents.find_all(domain, (chunk.item for chunk in chunks))
    for chunk in chunks:
        document = documents.get(chunk.item)
        if document is None or chunk.version != document.indexed_version:
            continue
        uri = document_uri(domain, document.document_id, document.indexed_version)
        title = document.indexed_title or document.document_id
        found.append(ChunkPassage(chunk=chunk, text=chunk.text, title=title, uri=uri))
    return found


def document_uri(domain: str, document_id: str, version: int) -> str:
    """Return the address of a document, in the version that is found."""
    return f"knowledge://{domain}/{quote(document_id)}?version={version}"


def is_address_of_document(uri: str) -> bool:
    return _DOCUMENT.match(uri) is not None


async def text_at(uri: str, library: SearchStores) -> str | None:
    """Return what a document, or a key of the caller's memory, says now; None if it is not there for the caller."""
    document = _DOCUMENT.match(uri)
    if document is not None:
        return await _text_of_document(document[1], unquote(document[2]), library)
    version = VersionId.parse(uri)
    scope = None if version is None else scope_of(version.line_id)
    if version is None or scope is None or scope.owner != library.actor.principal_id:
        return None
    if scope.session_id is not None and not await _admits(scope.session_id, library):
        return None
    said = await library.memories.read(scope, version.key)
    if said is None or not said.entry.is_live(library.now) or await library.records.redactions([uri]):
        return None
    return text_of_memory(said)


async def _text_of_document(domain: str, document_id: str, library: SearchStores) -> str | None:
    if await visible_domain(domain, library) is None:
        return None
    document = await library.documents.find(domain, document_id)
    kept = None if document is None else await library.documents.content(domain, document_id, document.indexed_content)
    return None if kept is None else decode_text(*kept)


async def _messages(session_id: str, chunks: Sequence[Chunk], library: SearchStores) -> list[ChunkPassage]:
    numbers = {int(chunk.item) for chunk in chunks}
    messages = {str(each.message_id): each for each in await visible_messages(session_id, numbers, library)}
    return [_of_message(session_id, messages[chunk.item], chunk) for chunk in chunks if chunk.item in messages]


async def visible_messages(session_id: str, numbers: Iterable[int], library: SearchStores) -> list[Message]:
    """Return those of a session's messages that there are for the caller."""
    if not await _admits(session_id, library):
        return []
    audiences = audiences_of(library.actor)
    found = await library.messages.find_several(session_id, sorted(numbers))
    return [message for message in found if message.audience in audiences]


async def _admits(session_id: str, library: SearchStores) -> bool:
    session = await library.sessions.find(session_id)
    return session is not None and session.admits(library.actor)


def _of_message(session_id: str, message: Message, chunk: Chunk) -> ChunkPassage:
    return ChunkPassage(
        chunk=chunk,
        text=text_of_message(message)[chunk.start : chunk.end],
        title="",
        uri=str(MessageItemId(session_id, message.message_id)),
        message_id=message.message_id,
        session_id=session_id,
    )


async def _entries(session_id: str, chunks: Sequence[Chunk], library: SearchStores) -> list[ChunkPassage]:
    if not await _admits(session_id, library):
        return []
    keys = sorted({key_of_item(chunk.item) for chunk in chunks})
    entries = {each.entry.key: each for each in await library.entries.read(session_id, keys)}
    found = []
    for chunk in chunks:
        said = entries.get(key_of_item(chunk.item))
        if said is None or version_of(said.entry) != chunk.version:
            continue
        entry = said.entry
        if entry.lives_at(library.now) and entry.readable(library.actor):
            text = text_of_entry(said)[chunk.start : chunk.end]
            uri = str(VersionId(line_of(session_id), entry.key, entry.incarnation, entry.version))
            found.append(
                ChunkPassage(chunk=chunk, text=text, title=entry.key, uri=uri, key=entry.key, session_id=session_id)
            )
    return found


async def _memories(owner: str, chunks: Sequence[Chunk], library: SearchStores) -> list[ChunkPassage]:
    if owner != library.actor.principal_id:
        return []
    return [passage for chunk in chunks if (passage := await _memory(owner, chunk, library)) is not None]


async def _memory(owner: str, chunk: Chunk, library: SearchStores) -> ChunkPassage | None:
    name = MemoryKey.parse(chunk.item)
    if name.session_id is not None and not await _admits(name.session_id, library):
        return None
    scope = MemoryScope(owner, name.session_id)
    said = await library.memories.read(scope, name.key)
    if said is None or not said.entry.is_live(library.now) or version_of(said.entry) != chunk.version:
        return None
    return ChunkPassage(
        chunk=chunk,
        text=text_of_memory(said)[chunk.start : chunk.end],
        title=name.key,
        uri=str(VersionId(scope.line_id, name.key, said.entry.incarnation, said.entry.version)),
        key=name.key,
        session_id=name.session_id,
    )


_READERS: dict[str, Callable[[str, Sequence[Chunk], SearchStores], Awaitable[list[ChunkPassage]]]] = {
    "document": _documents,
    "message": _messages,
    "board": _entries,
    "memory": _memories,
}
