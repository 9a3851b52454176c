"""Current text, ACL and importance of an item of a session, memory or window, and its chunks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.history.item_ids import MessageItemId, VersionId, is_number
from weftline.history.line_kinds import line_of
from weftline.history.lines import LineStore
from weftline.history.object_storage import Pointer
from weftline.indexing.chunking.chunker import split_into_chunks
from weftline.indexing.chunking.model import ChunkingOptions, ParsedDocument
from weftline.indexing.collections import (
    PROSE,
    SOURCES,
    WHOLE_PLACE,
    ChunkOwner,
    MemoryKey,
    NewChunk,
    WindowPlace,
    embedded_text,
    key_of_item,
)
from weftline.indexing.entities import EntityType, extract_entities, pack_entities
from weftline.indexing.pins import ItemPlace, PinStore
from weftline.indexing.text_analysis import index_terms
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.identity import ANYONE, HUMAN, Actor
from weftline.kernel.packed_text import ValueDamaged
from weftline.kernel.ports import approximate_tokens
from weftline.knowledge.documents import storable_text
from weftline.records.sql import RecordStore
from weftline.search.items import (
    MESSAGE_VERSION,
    event_numbered,
    is_searchable,
    speaker_of_event,
    text_of_entry,
    text_of_event,
    text_of_memory,
    text_of_message,
    version_of,
    version_of_event,
)
from weftline.search.persistent_memory import content_of, entry_of_item, is_persistent, version_id, version_of_entry
from weftline.sessions.messages.model import is_weighty, kind_of_chunks
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.sql import SessionStore
from weftline.state.agent_context.memory_version import MemoryVersion
from weftline.state.agent_context.service import Contexts
from weftline.state.board.sql import EntryStore
from weftline.state.memory.model import KeyRange, MemoryScope
from weftline.state.memory.sql import MemoryStore
from weftline.windows.line_events import apply_redactions, events_of_line
from weftline.windows.model import window_line
from weftline.windows.sql import EventCache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from weftline.indexing.collections import Source
    from weftline.indexing.entities import Entity
    from weftline.search.persistent_memory import EntryContent
    from weftline.search.session_cursor import IndexItem
    from weftline.sessions.messages.model import Message
    from weftline.state.agent_context.views import PersistedEntry
    from weftline.windows.model import WindowEvent


# Current text and ACL of an item of a session, memory or window, and its chunks.

# Rule-based importance of a text, without a model.
#
# Decisions, commitments, constraints and requirements raise it, and so do events, times, numbers and names; questions,
# very short texts, greetings and thanks lower it. Each rule counts once.

_MIN, _MAX = 0.05, 1.0
_SMALL_TALK_WEIGHT = -0.3
# Maximum words of small talk besides the greeting itself.
_FEW_WORDS = 6
# Shorter messages and questions carry little information.
_BRIEF_WORDS = 10
_BRIEF_WEIGHT = -0.1

_DECISION = re.compile(
    r"\b(decided|decision|decide[sd]? (to|on|against)|agreed|we (chose|choose|picked|settled)|go(ing)? with|approved|"
    r"rejected|concluded|conclusion|final(ly|ised|ized)?|verdict)\b",
    re.IGNORECASE,
)
_COMMITMENT = re.compile(
    r"\b(I|we|you|they)('ll| will| shall| promise| commit| am going to| are going to)\b|\b(deadline|due (by|on)|"
    r"by (monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|end of)|action item|assigned to|"
    r"responsible for|owner:)",
    re.IGNORECASE,
)
_CONSTRAINT = re.compile(
    r"\b(must( not)?|mustn't|never|always|required?|requirement|shall not|may not|cannot|can't|only if|at (most|least)|"
    r"no (more|less) than|limit(ed)?|constraint|forbidden|not allowed|mandatory|depends on|blocked|blocker)\b",
    re.IGNORECASE,
)
_FINDING = re.compile(
    r"\b(root cause|because|found that|turns out|failed|failure|error|bug|broken|fixed|risk|warning|important|critical|"
    r"urgent|note that|remember)\b",
    re.IGNORECASE,
)
_PERIOD = (
    "day|night|week|weekend|month|year|summer|winter|spring|fall|autumn|morning|monday|tuesday|wednesday|thursday|"
    "friday|saturday|sunday|january|february|march|april|may|june|july|august|september|october|november|december"
)
_TIME = re.compile(
    rf"\b(yesterday|today|tomorrow|tonight|ago|since|recently|(last|next|this|every|past) (\w+ )?({_PERIOD})|"
    r"(mon|tues|wednes|thurs|fri|satur|sun)day|january|february|april|june|july|august|september|october|november|"
    r"december|\d{4}-\d\d)\b",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"\b(I|we|he|she|they)('ve| have| has|'s)? (\w+ly |just |also |even |already )?(was|were|had|went|got|made|took|"
    r"saw|bought|began|found|lost|won|met|gave|came|said|told|built|wrote|been|gone|done|\w+ed)\b"
)
_OWN = re.compile(r"\b(my|our)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d")
# A capitalised word within a sentence, an e-mail address, a URL, a path or code.
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w-]+|[\w.]+@[\w.]+\.\w+|https?://|`[^`]+`|\b[\w-]+[./_][\w./-]+\w")
_RULES = (
    (0.3, _DECISION),
    (0.25, _CONSTRAINT),
    (0.2, _COMMITMENT),
    (0.15, _FINDING),
    (0.15, _TIME),
    (0.15, _HAPPENED),
    (0.1, _NUMBER),
    (0.05, _NAME),
    (0.05, _OWN),
)
_SMALL_TALK = re.compile(
    r"\b(hi|hello|hey|good (morning|afternoon|evening|night)|thanks?|thank you|thx|you're welcome|no problem|ok(ay)?|"
    r"sure|great|cool|nice|awesome|sounds good|got it|yes|yeah|yep|no|nope|bye|goodbye|see you|lol|haha+|wow|"
    r"how are you|what's up|done)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
# Longer texts are never only small talk.
_MAX_SMALL_TALK = 100
# Only the beginning of a long text is analysed.
_ANALYSED_CHARACTERS = 4_000

# Added for a category that the sender says is important, such as a decision or a fact.
_CATEGORY_WEIGHT = 0.2


def importance_of(text: str, source: Source, *, weighty: bool = False) -> float:
    """Return the importance of a text, from 0 to 1; ``weighty``: its category says that it is important."""
    analysed = text[:_ANALYSED_CHARACTERS]
    signs = sum(weight for weight, pattern in _RULES if pattern.search(analysed))
    if _is_small_talk(analysed):
        signs += _SMALL_TALK_WEIGHT
    elif SOURCES[source].is_spoken and len(analysed.split()) < _BRIEF_WORDS:
        signs += _BRIEF_WEIGHT
    if analysed.rstrip().endswith("?"):
        signs += _BRIEF_WEIGHT
    if weighty:
        signs += _CATEGORY_WEIGHT
    return round(min(_MAX, max(_MIN, SOURCES[source].base_importance + signs)), 3)


def is_without_content(text: str) -> bool:
    """Tell whether a text has no words besides small talk, such as 'ok, thanks!'; no query asks for its meaning."""
    return len(text) <= _MAX_SMALL_TALK and not _WORD.search(_SMALL_TALK.sub(" ", text))


def _is_small_talk(text: str) -> bool:
    """Tell whether a text is only small talk."""
    rest = _SMALL_TALK.sub(" ", text)
    words = len(_WORD.findall(rest))
    return rest != text and words <= _FEW_WORDS and len(_WORD.findall(text)) <= words + _FEW_WORDS


# Messages are short; chunks of long ones should fit into an embedder's input.
_CHUNKING = ChunkingOptions(chunk_tokens=256, overlap_tokens=32)
_MEDIA_TYPE = "text/plain"
_MAX_PURPOSE = 200


class ItemText(msgspec.Struct, frozen=True, kw_only=True):
    """Text of an item. ``scope`` is its ACL as stored in chunks; ``importance`` is what its author said.

    ``speaker_type``: whether the speaker is a person or an agent, if known. ``weighty``: its category says that it is
    important.
    """

    text: str
    version: int
    timestamp: int
    scope: str = WHOLE_PLACE
    heading: str = ""
    speaker: str = ""
    speaker_type: EntityType | None = None
    pinned: bool = False
    importance: float | None = None
    weighty: bool = False
    kind: str = PROSE
    # A value in object storage, whose text has to be fetched outside of the transaction, and its media type.
    pointer: Pointer | None = None
    media_type: str | None = None
    semantic: bool = True

    @property
    def size(self) -> int:
        """Return the approximate number of characters."""
        return len(self.text) if self.pointer is None else self.pointer.size


class ItemTexts(msgspec.Struct, frozen=True):
    """Reads the current text of items."""

    actor: Actor
    messages: MessageStore
    entries: EntryStore
    memories: MemoryStore
    contexts: Contexts
    records: RecordStore
    lines: LineStore
    window_cache: EventCache
    clock: Clock
    pins: PinStore
    sessions: SessionStore

    async def read(self, item: IndexItem) -> ItemText | None:
        """Return the current text of an item; None if it is deleted, damaged or redacted."""
        try:
            text = await self._read(item)
        except ValueDamaged:
            # Reading it reports the damage; here it must not block the rest of the log.
            return None
        if text is None or await self._is_semantic(item):
            return text
        return structs.replace(text, semantic=False)

    async def _is_semantic(self, item: IndexItem) -> bool:
        """Return whether the item's session, if it has one, is searched by meaning."""
        session_id = item.session_id
        session = None if session_id is None else await self.sessions.find(session_id)
        return session is None or session.config.semantic_search

    async def _read(self, item: IndexItem) -> ItemText | None:
        match item.source:
            case "message":
                return await self._message(item)
            case "board":
                return await self._entry(item)
            case "event":
                return await self._event(item)
            case _:
                return await self._memory(item)

    async def _message(self, item: IndexItem) -> ItemText | None:
        if not is_number(item.item):
            return None
        message = await self.messages.find(item.place, int(item.item))
        if message is None or await self._is_redacted(MessageItemId(item.place, message.message_id)):
            return None
        return ItemText(
            text=text_of_message(message),
            version=MESSAGE_VERSION,
            timestamp=message.sent_at,
            scope=_scope(message.readers),
            speaker=message.sender,
            speaker_type=_speaker_type(message),
            pinned=await self._is_pinned(item),
            weighty=is_weighty(message),
            kind=kind_of_chunks(message),
        )

    async def _entry(self, item: IndexItem) -> ItemText | None:
        found = next(iter(await self.entries.read(item.place, [key_of_item(item.item)])), None)
        if found is None or not found.entry.lives_at(self._now()):
            return None
        entry = found.entry
        if await self._is_redacted(VersionId(line_of(item.place), entry.key, entry.incarnation, entry.version)):
            return None
        session = await self.sessions.find(item.place)
        return ItemText(
            text=text_of_entry(found),
            version=version_of(entry),
            timestamp=entry.written_at,
            scope=_scope(entry.readers),
            # A conclusion seldom repeats the question that its session is about.
            heading=entry.key if session is None else f"{session.purpose[:_MAX_PURPOSE]}\n{entry.key}",
            speaker=entry.written_by,
            pinned=await self._is_pinned(item),
        )

    async def _memory(self, item: IndexItem) -> ItemText | None:
        if is_persistent(item.place):
            return await self._persistent_memory(item)
        name = MemoryKey.parse(item.item)
        scope = MemoryScope(item.place, name.session_id)
        found = await self.memories.read(scope, name.key)
        if found is None or not found.entry.is_live(self._now()):
            return None
        entry = found.entry
        if await self._is_redacted(VersionId(scope.line_id, entry.key, entry.incarnation, entry.version)):
            return None
        return ItemText(
            text=text_of_memory(found),
            version=version_of(entry),
            timestamp=entry.updated_at,
            heading=entry.key,
            pinned=await self._is_pinned(item),
        )

    async def _persistent_memory(self, item: IndexItem) -> ItemText | None:
        memory = await MemoryVersion.find(self.contexts, item.place)
        entry = None if memory is None else await memory.entry(entry_of_item(item.item))
        content = None if entry is None else content_of(entry.version)
        if memory is None or entry is None or content is None:
            return None
        if await self._is_redacted(await version_id(memory, entry)):
            return None
        return text_of_persisted(entry, content, pinned=await self._is_pinned(item))

    async def _event(self, item: IndexItem) -> ItemText | None:
        if not is_number(item.item):
            return None
        event = await self._live_event(item.place, int(item.item))
        if event is None:
            return None
        redactions = await self.records.redactions_in(WindowPlace.parse(item.place).session_id)
        (event,) = apply_redactions([event], redactions)
        text = text_of_event(event)
        if not is_searchable(event) or not text:
            return None
        return ItemText(
            text=text,
            version=version_of_event(event),
            timestamp=event.time,
            speaker=speaker_of_event(event),
            pinned=event.pinned,
            importance=event.importance,
        )

    async def memory_keys_after(self, scope: MemoryScope, key: str, limit: int) -> Sequence[str]:
        """Return the next keys of a private memory."""
        entries = await self.memories.page(scope, KeyRange.of("", key), self._now(), limit)
        return [entry.key for entry in entries]

    async def live_versions(self, place: str) -> dict[int, int]:
        """Return the numbers of the events of a window that are on any of its branches, with their versions."""
        found: dict[int, int] = {}
        async for events in self._branches(place):
            for event in events:
                found.setdefault(event.number, version_of_event(event))
        return found

    async def number_of_event(self, place: str, event_id: str) -> int | None:
        async for events in self._branches(place):
            for event in events:
                if event.event_id == event_id:
                    return event.number
        return None

    async def _live_event(self, place: str, number: int) -> WindowEvent | None:
        async for events in self._branches(place):
            if (event := event_numbered(events, number)) is not None:
                return event
        return None

    async def _branches(self, place: str) -> AsyncIterator[Sequence[WindowEvent]]:
        """Yield the events of a window's main line, then of its branches."""
        trunk = window_line(*WindowPlace.parse(place))
        line = await self.lines.find(trunk)
        if line is None:
            return
        yield (await events_of_line(self.lines, self.window_cache, self.actor.tenant, line.head)).events
        for branch in await self.lines.branches(trunk):
            yield (await events_of_line(self.lines, self.window_cache, self.actor.tenant, branch.head)).events

    async def _is_pinned(self, item: IndexItem) -> bool:
        return await self.pins.find(ItemPlace(item.collection, item.place, item.item)) is not None

    async def _is_redacted(self, name: MessageItemId | VersionId) -> bool:
        return bool(await self.records.redactions([str(name)]))

    def _now(self) -> int:
        return to_micros(self.clock.now())


def text_of_persisted(entry: PersistedEntry, content: EntryContent, *, pinned: bool) -> ItemText:
    """Return the text of an entry of persistent memory; its version is that of the entry."""
    return ItemText(
        text=content.text,
        pointer=content.pointer,
        media_type=content.media_type,
        version=version_of_entry(entry.version),
        timestamp=entry.version.committed_at,
        heading=entry.place.key,
        speaker=entry.version.author,
        pinned=pinned,
    )


def chunks_of(item: IndexItem, content: ItemText) -> list[NewChunk]:
    """Return the chunks of an item's text."""
    pieces = split_into_chunks(ParsedDocument(text=content.text, media_type=_MEDIA_TYPE), _CHUNKING, approximate_tokens)
    chunks, owner = [], ChunkOwner(item.source, item.place, item.item, content.scope)
    for ordinal, piece in enumerate(pieces):
        text = storable_text(content.text[piece.start : piece.end])
        chunk = NewChunk(
            source=item.source,
            place=item.place,
            item=item.item,
            ordinal=ordinal,
            start=piece.start,
            end=piece.end,
            terms=index_terms(text, content.heading),
            digest=owner.digest_of(
                embedded_text(content.heading, text, content.speaker if SOURCES[item.source].is_spoken else "")
            ),
            tokens=piece.tokens,
            timestamp=content.timestamp,
            version=content.version,
            scope=content.scope,
            kind=content.kind,
            heading=content.heading,
            speaker=content.speaker,
            importance=importance_of(text, item.source, weighty=content.weighty)
            if content.importance is None
            else content.importance,
            pinned=content.pinned,
            entities=pack_entities(_entities(text, content)),
            semantic=content.semantic and not (SOURCES[item.source].is_spoken and is_without_content(text)),
            text=text,
        )
        chunks.append(chunk)
    return chunks


def _entities(text: str, content: ItemText) -> Sequence[Entity]:
    return extract_entities(
        text, speaker=content.speaker, speaker_type=content.speaker_type, timestamp=content.timestamp
    )


def _speaker_type(message: Message) -> EntityType | None:
    if message.author is None:
        return None
    return "person" if message.author.startswith(HUMAN) else "agent"


def _scope(readers: tuple[str, ...]) -> str:
    return WHOLE_PLACE if readers == ANYONE else msgspec.json.encode(readers).decode()
