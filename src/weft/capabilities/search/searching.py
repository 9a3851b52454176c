"""Searching a transcript through indexes that are kept up to date with it.

There is one index for each audience of a session, so that what a caller may not see is never near what it is shown. An
index lasts as long as the stamp of its audience; new messages are added to it when it is next searched, a slice at a
time, so that not even a very long transcript keeps others waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec

from weft.capabilities.messages.model import Excerpt, Part, Visibility
from weft.capabilities.messages.operations import MessageInfo, message_info
from weft.capabilities.messages.transcripts import Transcripts
from weft.capabilities.search.index import Index
from weft.capabilities.search.preview import preview
from weft.capabilities.search.ranking import Hit, search_in_steps
from weft.capabilities.search.words import metadata_text
from weft.kernel.caching import Keeping, weight_of
from weft.kernel.identity import Actor
from weft.kernel.operation import Response

if TYPE_CHECKING:
    from weft.capabilities.messages.model import Message, Tally
    from weft.capabilities.messages.transcripts import Transcript

T = TypeVar("T")
# The tenant, the session, the audience and its stamp.
IndexKey = tuple[str, str, str, int]

_SLICE = 500
_HIGH, _MEDIUM = 80, 60


class Wanted(msgspec.Struct, frozen=True):
    """What to look for, and where."""

    query: str
    threshold: float
    limit: int
    with_metadata: bool
    visibilities: tuple[Visibility, ...]


class SearchResult(Response, kw_only=True, omit_defaults=False):
    """A message that matches; ``matched_by`` says how."""

    message: MessageInfo
    score: float
    match_preview: str
    relevance: str
    matched_by: str


class Found(msgspec.Struct, frozen=True):
    """What a search came to."""

    results: list[SearchResult]
    searched: int
    cache_hit: bool


class TranscriptReads(Protocol):
    """Reading transcripts outside the one transaction that an operation usually has."""

    async def read(self, actor: Actor, work: Callable[[Transcripts], Awaitable[T]]) -> T:
        """Run ``work`` on one consistent view, as this caller."""
        ...


class _Ready(msgspec.Struct, frozen=True):
    """Indexes that hold all that a caller may see, and what stands for that."""

    key: Hashable
    size: int
    indexes: list[Index]


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches, and remembers the indexes and answers that searching took."""

    reads: TranscriptReads
    indexes: Keeping
    answers: Keeping
    # A transcript that is searched by several at once is indexed once, also where the index is too large to be kept.
    in_use: WeakValueDictionary[IndexKey, Index] = field(default_factory=WeakValueDictionary)

    async def find(self, actor: Actor, session_id: str, wanted: Wanted) -> Found:
        at_hand: dict[IndexKey, Index] = {}
        while True:
            looked = await self.reads.read(actor, partial(self._look, session_id, wanted, at_hand))
            if isinstance(looked, Found):
                return looked
            if looked is not None:
                hits = await _in_steps(looked.indexes, wanted)
                return await self.reads.read(actor, partial(self._found, session_id, wanted, looked, hits))
            await asyncio.sleep(0)

    async def _look(
        self, session_id: str, wanted: Wanted, at_hand: dict[IndexKey, Index], transcripts: Transcripts
    ) -> Found | _Ready | None:
        """Return an answer there is already, or the indexes to search; None if they are still behind."""
        transcript = await transcripts.to_read(session_id, *wanted.visibilities)
        key = _key(transcripts, transcript, wanted)
        known: list[SearchResult] | None = self.answers.get(key)
        if known is not None:
            return Found(known, transcript.size, cache_hit=True)
        indexes = await self._indexes(transcripts.actor.tenant, transcript, at_hand)
        return None if indexes is None else _Ready(key, transcript.size, indexes)

    async def _indexes(self, tenant: str, transcript: Transcript, at_hand: dict[IndexKey, Index]) -> list[Index] | None:
        room, indexes = _SLICE, []
        for tally in transcript.tallies:
            key = (tenant, transcript.session.session_id, tally.audience, tally.stamp)
            at_hand[key] = self.in_use[key] = index = self.in_use.get(key) or self.indexes.get(key) or Index()
            if index.size < tally.messages:
                room -= await _catch_up(index, transcript, tally, room)
                self.indexes.put(key, index, index.weight)
            if index.size < tally.messages:
                return None
            indexes.append(index)
        return indexes

    async def _found(
        self, session_id: str, wanted: Wanted, searched: _Ready, hits: list[Hit], transcripts: Transcripts
    ) -> Found:
        """Return the messages that were hit, as far as they are for the caller at this very moment."""
        transcript = await transcripts.to_read(session_id, *wanted.visibilities)
        found = await transcript.messages.find_several(session_id, [hit.message_id for hit in hits])
        messages = {message.message_id: message for message in found if message.audience in transcript.audiences}
        results = [_result(messages[hit.message_id], hit, wanted.query) for hit in hits if hit.message_id in messages]
        if _key(transcripts, transcript, wanted) == searched.key:
            self.answers.put(searched.key, results, weight_of(results))
        return Found(results, searched.size, cache_hit=False)


def _key(transcripts: Transcripts, transcript: Transcript, wanted: Wanted) -> Hashable:
    return (transcripts.actor.tenant, transcript.state, wanted)


async def _catch_up(index: Index, transcript: Transcript, tally: Tally, room: int) -> int:
    if room <= 0:
        return 0
    excerpt = Excerpt((tally.audience,), Part(after=index.last_id, limit=room))
    messages = await transcript.messages.read(transcript.session.session_id, excerpt)
    for message in messages:
        # Whoever searched meanwhile may have added it.
        if message.message_id > index.last_id:
            index.add(message.message_id, _searched_text(message), metadata_text(message.metadata))
    return len(messages)


async def _in_steps(indexes: list[Index], wanted: Wanted) -> list[Hit]:
    """Search without keeping others waiting."""
    steps = search_in_steps(
        indexes,
        wanted.query,
        threshold=wanted.threshold,
        limit=wanted.limit,
        with_metadata=wanted.with_metadata,
    )
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            hits: list[Hit] = finished.value
            return hits
        await asyncio.sleep(0)


def _searched_text(message: Message) -> str:
    return f"{message.sender} {message.content}"


def _result(message: Message, hit: Hit, query: str) -> SearchResult:
    return SearchResult(
        message=message_info(message),
        score=round(hit.score, 1),
        match_preview=preview(message.content, query),
        relevance="high" if hit.score >= _HIGH else "medium" if hit.score >= _MEDIUM else "low",
        matched_by=hit.matched_by,
    )
