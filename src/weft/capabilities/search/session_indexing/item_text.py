"""What an item of a session or of a memory says now, to whom, and what is put in the collection of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.board.store import EntryStore
from weft.capabilities.history.model import ValueDamaged
from weft.capabilities.indexing.chunking.chunker import cut
from weft.capabilities.indexing.chunking.model import ChunkingOptions, Reading
from weft.capabilities.indexing.collections.model import WHOLE_PLACE, NewChunk, digest_of, embedded_text
from weft.capabilities.indexing.text_analysis import index_terms
from weft.capabilities.knowledge.document_content import storable_text
from weft.capabilities.memory.model import MemoryScope
from weft.capabilities.memory.store import MemoryStore
from weft.capabilities.messages.store import MessageStore
from weft.capabilities.records.record_ids import MessageItemId, VersionId, is_number
from weft.capabilities.records.store import RecordStore
from weft.capabilities.search.items import (
    VERSION_OF_MESSAGES,
    MemoryKey,
    key_of_item,
    text_of_entry,
    text_of_memory,
    text_of_message,
    version_of,
)
from weft.capabilities.search.session_indexing.importance import importance_of, is_pinned
from weft.capabilities.sessions.model import line_of
from weft.kernel.clock import Clock, to_micros
from weft.kernel.identity import ANYONE
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from weft.capabilities.search.session_indexing.cursor import IndexItem

# What is said at once is short; a part of what is long should be no longer than an embedder takes in.
_CUTTING = ChunkingOptions(chunk_tokens=256, overlap_tokens=32)
_MEDIA_TYPE = "text/plain"


class ItemText(msgspec.Struct, frozen=True, kw_only=True):
    """What an item says. ``scope`` is who may see it, as chunks have it."""

    text: str
    version: int
    timestamp: int
    scope: str = WHOLE_PLACE
    heading: str = ""
    speaker: str = ""
    pinned: bool = False


class ItemTexts(msgspec.Struct, frozen=True):
    """Everything that reading what there is to be found needs."""

    messages: MessageStore
    entries: EntryStore
    memories: MemoryStore
    records: RecordStore
    clock: Clock

    async def said(self, subject: IndexItem) -> ItemText | None:
        """Return what an item says now; None if it is gone or damaged, or must not be found by what it says."""
        try:
            return await self._said(subject)
        except ValueDamaged:
            # Whoever reads it is told; here it only must not keep the rest of the log waiting.
            return None

    async def _said(self, subject: IndexItem) -> ItemText | None:
        match subject.source:
            case "message":
                return await self._message(subject)
            case "board":
                return await self._entry(subject)
            case _:
                return await self._memory(subject)

    async def _message(self, subject: IndexItem) -> ItemText | None:
        if not is_number(subject.item):
            return None
        message = await self.messages.find(subject.place, int(subject.item))
        if message is None or await self._is_redacted(MessageItemId(subject.place, message.message_id)):
            return None
        return ItemText(
            text=text_of_message(message),
            version=VERSION_OF_MESSAGES,
            timestamp=message.sent_at,
            scope=_scope((message.audience,)),
            speaker=message.sender,
            pinned=is_pinned(message.sender, message.category, message.message_type, message.metadata),
        )

    async def _entry(self, subject: IndexItem) -> ItemText | None:
        found = next(iter(await self.entries.read(subject.place, [key_of_item(subject.item)])), None)
        if found is None or not found.entry.lives_at(self._now()):
            return None
        entry = found.entry
        if await self._is_redacted(VersionId(line_of(subject.place), entry.key, entry.incarnation, entry.version)):
            return None
        return ItemText(
            text=text_of_entry(found),
            version=version_of(entry),
            timestamp=entry.written_at,
            scope=_scope(entry.readers),
            heading=entry.key,
            speaker=entry.written_by,
        )

    async def _memory(self, subject: IndexItem) -> ItemText | None:
        name = MemoryKey.parse(subject.item)
        scope = MemoryScope(subject.place, name.session_id)
        found = await self.memories.read(scope, name.key)
        if found is None or not found.entry.is_live(self._now()):
            return None
        entry = found.entry
        if await self._is_redacted(VersionId(scope.line_id, entry.key, entry.incarnation, entry.version)):
            return None
        return ItemText(
            text=text_of_memory(found), version=version_of(entry), timestamp=entry.updated_at, heading=entry.key
        )

    async def _is_redacted(self, name: MessageItemId | VersionId) -> bool:
        return bool(await self.records.redactions([str(name)]))

    def _now(self) -> int:
        return to_micros(self.clock.now())


def chunks_of(subject: IndexItem, said: ItemText) -> list[NewChunk]:
    """Return what is put in the collection of something that is said."""
    pieces = cut(Reading(text=said.text, media_type=_MEDIA_TYPE), _CUTTING, approximate_tokens)
    chunks = []
    for ordinal, piece in enumerate(pieces):
        text = storable_text(said.text[piece.start : piece.end])
        chunk = NewChunk(
            source=subject.source,
            place=subject.place,
            item=subject.item,
            ordinal=ordinal,
            start=piece.start,
            end=piece.end,
            terms=index_terms(text, said.heading),
            digest=digest_of(embedded_text(said.heading, text, said.speaker if subject.source == "message" else "")),
            tokens=piece.tokens,
            timestamp=said.timestamp,
            version=said.version,
            scope=said.scope,
            heading=said.heading,
            speaker=said.speaker,
            importance=importance_of(text, subject.source),
            pinned=said.pinned,
            text=text,
        )
        chunks.append(chunk)
    return chunks


def _scope(readers: tuple[str, ...]) -> str:
    return WHOLE_PLACE if readers == ANYONE else msgspec.json.encode(readers).decode()
