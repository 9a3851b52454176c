"""Message search through cached inverted indexes.

Each audience of a session has its own index, so that hidden messages cannot affect visible ones. An index is valid for
the stamp of its audience; new messages are added to it by the next search.

A transaction reads a slice of the transcript, counted in characters, or the messages of a few hits; threads process
them outside of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from weftline.kernel.identity import Actor
from weftline.kernel.operation import Response
from weftline.kernel.ports import CacheKey, Transactions, ValueCache, memory_size
from weftline.kernel.thread_pools import SEARCH_THREADS, short_turns
from weftline.sessions.messages.model import Excerpt, Message, TranscriptRange, Visibility
from weftline.sessions.messages.operations import MessageInfo, message_info
from weftline.sessions.messages.search.fuzzy_ranking import MessageHit, search_in_steps
from weftline.sessions.messages.search.inverted_index import MessageIndex, metadata_text
from weftline.sessions.messages.search.snippets import Snippets
from weftline.sessions.messages.transcript import Transcripts

if TYPE_CHECKING:
    from weftline.sessions.messages.model import AudienceCount
    from weftline.sessions.messages.transcript import Transcript

T = TypeVar("T")
# Tenant, session, audience and its stamp.
IndexKey = tuple[str, str, str, int]

# Characters of content and metadata that one transaction reads, and the minimum counted for a message.
SLICE_CHARACTERS = 100_000
_MIN_CHARACTERS = 200
# Message lengths are unknown before reading: few are read at once, and very few while they are long.
_MIN_PER_READ, _MAX_PER_READ = 2, 16
_LONG_CHARACTERS = 2_000
_HITS_PER_READ = 10
# Maximum weight of an index, so that the cache has room for one however large it is.
MAX_INDEX_WEIGHT = 96 * 1024 * 1024
_HIGH, _MEDIUM = 80, 60


class MessageQuery(msgspec.Struct, frozen=True):
    """Query and scope of a message search."""

    query: str
    threshold: float
    limit: int
    with_metadata: bool
    visibilities: tuple[Visibility, ...]


class MessageMatch(Response, kw_only=True, omit_defaults=False):
    """A matching message; ``matched_by``: words, fuzzy or both."""

    message: MessageInfo
    score: float
    match_preview: str
    relevance: str
    matched_by: str


class MessageSearchResult(msgspec.Struct, frozen=True):
    """Results of a message search."""

    results: list[MessageMatch]
    searched: int
    cache_hit: bool


class _Entry(NamedTuple):
    """The searched parts of one message; ``metadata`` is JSON text."""

    message_id: int
    text: str
    metadata: str


class _IndexUpdate(NamedTuple):
    """An index and the next messages that it lacks."""

    key: IndexKey
    target: MessageIndex
    missing: list[_Entry]


class _SearchState(msgspec.Struct, frozen=True):
    """Indexes of the audiences, with the next messages they lack; ``is_complete`` if there are no more after these."""

    key: CacheKey
    size: int
    indexes: list[MessageIndex]
    updates: list[_IndexUpdate]
    is_complete: bool


class _HitMessages(NamedTuple):
    """Messages of hits, and the cache key of the state they were read at."""

    key: CacheKey
    messages: dict[int, Message]


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches transcripts, with caches of indexes and answers."""

    reads: Transactions[Transcripts]
    indexes: ValueCache
    answers: ValueCache
    # Concurrent searches of a transcript share one index.
    in_use: WeakValueDictionary[IndexKey, MessageIndex] = field(default_factory=WeakValueDictionary)
    lock: threading.Lock = field(default_factory=threading.Lock)

    async def find(self, actor: Actor, session_id: str, query: MessageQuery) -> MessageSearchResult:
        held_indexes: dict[IndexKey, MessageIndex] = {}
        while True:
            state = await self.reads.read(actor, partial(self._prepare, session_id, query, held_indexes))
            if isinstance(state, MessageSearchResult):
                return state
            for update in state.updates:
                await SEARCH_THREADS.run(_catch_up, update)
                self.indexes.put(update.key, update.target, min(update.target.weight, MAX_INDEX_WEIGHT))
            if state.is_complete:
                hits = await SEARCH_THREADS.run(_hits, state.indexes, query)
                return await self._results(actor, session_id, query, state, hits)

    async def _prepare(
        self, session_id: str, query: MessageQuery, held_indexes: dict[IndexKey, MessageIndex], transcripts: Transcripts
    ) -> MessageSearchResult | _SearchState:
        """Return a cached answer, or the indexes to search with the next slice of what they lack."""
        transcript = await transcripts.to_read(session_id, *query.visibilities)
        key = _key(transcripts, transcript, query)
        known: list[MessageMatch] | None = self.answers.get(key)
        if known is not None:
            return MessageSearchResult(known, transcript.size, cache_hit=True)
        indexes: list[MessageIndex] = []
        update: list[_IndexUpdate] = []
        budget, is_complete = SLICE_CHARACTERS, True
        for audience_count in transcript.audience_counts:
            index_key = (transcripts.actor.tenant, session_id, audience_count.audience, audience_count.stamp)
            index = held_indexes[index_key] = self._index(index_key)
            indexes.append(index)
            if index.size < audience_count.messages:
                missing, budget, complete = await _missing(index, transcript, audience_count, budget)
                update.append(_IndexUpdate(index_key, index, missing))
                is_complete &= complete
        return _SearchState(key, transcript.size, indexes, update, is_complete)

    def _index(self, key: IndexKey) -> MessageIndex:
        # A large slice is read in a thread.
        with self.lock:
            index: MessageIndex = self.in_use.get(key) or self.indexes.get(key) or MessageIndex()
            self.in_use[key] = index
        return index

    async def _results(
        self, actor: Actor, session_id: str, query: MessageQuery, state: _SearchState, hits: Sequence[MessageHit]
    ) -> MessageSearchResult:
        """Return the messages of hits, as far as the caller may read them now."""
        snippets = Snippets(query.query)
        results: list[MessageMatch] = []
        weight, unchanged = memory_size(query), True
        # Also without a hit: access is checked again at the end.
        for start in range(0, max(1, len(hits)), _HITS_PER_READ):
            batch = hits[start : start + _HITS_PER_READ]
            shown = await self.reads.read(actor, partial(_show, session_id, query, batch))
            unchanged &= shown.key == state.key
            found = [(message, hit) for hit in batch if (message := shown.messages.get(hit.message_id))]
            made = await SEARCH_THREADS.run(_matches, found, snippets)
            weight += sum(map(memory_size, made))
            results += made
        if unchanged:
            self.answers.put(state.key, results, weight)
        return MessageSearchResult(results, state.size, cache_hit=False)


def _key(transcripts: Transcripts, transcript: Transcript, query: MessageQuery) -> CacheKey:
    # Includes the caller: a shared answer would reveal what others searched.
    return (transcripts.actor.tenant, transcripts.actor.principal_id, transcript.state, query)


async def _show(
    session_id: str, query: MessageQuery, hits: Iterable[MessageHit], transcripts: Transcripts
) -> _HitMessages:
    transcript = await transcripts.to_read(session_id, *query.visibilities)
    found = await transcript.messages.find_several(session_id, [hit.message_id for hit in hits])
    messages = {message.message_id: message for message in found if message.is_among(transcript.audiences)}
    return _HitMessages(_key(transcripts, transcript, query), messages)


async def _missing(
    index: MessageIndex, transcript: Transcript, audience_count: AudienceCount, budget: int
) -> tuple[list[_Entry], int, bool]:
    """Read the next messages after an index; return them, the remaining budget, and whether these are all."""
    missing: list[_Entry] = []
    known, last_id, limit = index.size, index.last_id, _MIN_PER_READ
    while budget > 0 and known + len(missing) < audience_count.messages:
        excerpt = Excerpt((audience_count.audience,), TranscriptRange(after=last_id, limit=limit))
        messages = await transcript.messages.read(transcript.session.session_id, excerpt)
        if not messages:
            break
        missing += map(_entry, messages)
        last_id = messages[-1].message_id
        characters = sum(map(_characters, messages))
        budget -= characters
        limit = min(2 * limit, _MAX_PER_READ) if characters < limit * _LONG_CHARACTERS else _MIN_PER_READ
    return missing, budget, known + len(missing) >= audience_count.messages


def _characters(message: Message) -> int:
    return max(_MIN_CHARACTERS, message.size)


def _entry(message: Message) -> _Entry:
    # A message without text is no hit, whatever its metadata; the sender's name is not what it says.
    return _Entry(message.message_id, message.content, message.metadata if message.content.strip() else "{}")


def _catch_up(update: _IndexUpdate) -> None:
    with short_turns():
        for entry in update.missing:
            with update.target.lock:
                # A concurrent search may have added it.
                if entry.message_id > update.target.last_id:
                    metadata = metadata_text(msgspec.json.decode(entry.metadata))
                    update.target.add(entry.message_id, entry.text, metadata)


def _hits(indexes: Sequence[MessageIndex], query: MessageQuery) -> list[MessageHit]:
    """Search in steps, between which other searches may add messages to the same indexes."""
    # Always in this order, so that two searches never wait for each other.
    locks = [index.lock for index in sorted(indexes, key=id)]
    steps = search_in_steps(
        indexes,
        query.query,
        threshold=query.threshold,
        limit=query.limit,
        with_metadata=query.with_metadata,
    )
    with short_turns():
        while True:
            try:
                with ExitStack() as held:
                    for lock in locks:
                        held.enter_context(lock)
                    next(steps)
            except StopIteration as finished:
                hits: list[MessageHit] = finished.value
                return hits


def _matches(found: Sequence[tuple[Message, MessageHit]], snippets: Snippets) -> list[MessageMatch]:
    return [_result(message, hit, snippets) for message, hit in found]


def _result(message: Message, hit: MessageHit, snippets: Snippets) -> MessageMatch:
    return MessageMatch(
        message=message_info(message),
        score=round(hit.score, 1),
        match_preview=snippets.of(message.content),
        relevance="high" if hit.score >= _HIGH else "medium" if hit.score >= _MEDIUM else "low",
        matched_by=hit.matched_by,
    )
