"""Searching a transcript through indexes that are kept up to date with it.

There is one index for each audience of a session, so that what a caller may not see is never near what it is shown. An
index lasts as long as the stamp of its audience; new messages are added to it when it is next searched.

Others have their turn between two short steps of all this: a transaction reads a slice of the transcript, counted in
characters, or the messages of a few hits; what is done with these happens outside of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from weft.capabilities.messages.model import Excerpt, Message, TranscriptRange, Visibility
from weft.capabilities.messages.operations import MessageInfo, message_info
from weft.capabilities.messages.search.fuzzy_ranking import MessageHit, search_in_steps
from weft.capabilities.messages.search.inverted_index import Index, metadata_text
from weft.capabilities.messages.search.snippets import Previews
from weft.capabilities.messages.search.time_slices import Pace, TimeSlices
from weft.capabilities.messages.transcript import Transcripts
from weft.kernel.identity import Actor
from weft.kernel.operation import Response
from weft.kernel.ports import Transactions, ValueCache, memory_size

if TYPE_CHECKING:
    from weft.capabilities.messages.model import AudienceCount
    from weft.capabilities.messages.transcript import Transcript

T = TypeVar("T")
# The tenant, the session, the audience and its stamp.
IndexKey = tuple[str, str, str, int]

# How many characters of content and metadata one transaction reads, and what a message counts at least.
SLICE = 100_000
_LEAST = 200
# How long messages are shows once they are read: only a few are read at once, and very few as long as they are long.
_FEWEST_PER_READ, _MOST_PER_READ = 2, 16
_LONG = 2_000
_HITS_PER_READ = 10
# A message of nothing but new words takes ten milliseconds.
CHARACTERS_PER_STEP = 8_000
# An index counts as no more than this, so that the cache has room for one however large it is.
HEAVIEST = 96 * 1024 * 1024
_HIGH, _MEDIUM = 80, 60


class MessageQuery(msgspec.Struct, frozen=True):
    """What to look for, and where."""

    query: str
    threshold: float
    limit: int
    with_metadata: bool
    visibilities: tuple[Visibility, ...]


class MessageMatch(Response, kw_only=True, omit_defaults=False):
    """A message that matches; ``matched_by`` says how."""

    message: MessageInfo
    score: float
    match_preview: str
    relevance: str
    matched_by: str


class MessageSearchResult(msgspec.Struct, frozen=True):
    """What a search came to."""

    results: list[MessageMatch]
    searched: int
    cache_hit: bool


class _Entry(NamedTuple):
    """What is searched of one message; ``metadata`` is JSON text."""

    message_id: int
    text: str
    metadata: str


class _Behind(NamedTuple):
    """An index, and messages that it does not have yet."""

    key: IndexKey
    to: Index
    missing: list[_Entry]


class _Looked(msgspec.Struct, frozen=True):
    """Indexes of what a caller may see, what stands for that, and how far they are behind: to the end, or further."""

    key: Hashable
    size: int
    indexes: list[Index]
    rest_after: list[_Behind]
    to_the_end: bool


class _Shown(NamedTuple):
    """Messages that were hit, and what stands for all that the caller may see at this moment."""

    key: Hashable
    messages: dict[int, Message]


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches, and remembers the indexes and answers that searching took."""

    reads: Transactions[Transcripts]
    indexes: ValueCache
    answers: ValueCache
    # A transcript that is searched by several at once is indexed once.
    in_use: WeakValueDictionary[IndexKey, Index] = field(default_factory=WeakValueDictionary)

    async def find(self, actor: Actor, session_id: str, wanted: MessageQuery) -> MessageSearchResult:
        at_hand: dict[IndexKey, Index] = {}
        while True:
            looked = await self.reads.read(actor, partial(self._look, session_id, wanted, at_hand))
            if isinstance(looked, MessageSearchResult):
                return looked
            for behind in looked.rest_after:
                await _catch_up(behind)
                self.indexes.put(behind.key, behind.to, min(behind.to.weight, HEAVIEST))
            if looked.to_the_end:
                hits = await _in_steps(looked.indexes, wanted)
                return await self._found(actor, session_id, wanted, looked, hits)
            await asyncio.sleep(0)

    async def _look(
        self, session_id: str, wanted: MessageQuery, at_hand: dict[IndexKey, Index], transcripts: Transcripts
    ) -> MessageSearchResult | _Looked:
        """Return an answer there is already, or the indexes to search and the next slice of what they lack."""
        transcript = await transcripts.to_read(session_id, *wanted.visibilities)
        key = _key(transcripts, transcript, wanted)
        known: list[MessageMatch] | None = self.answers.get(key)
        if known is not None:
            return MessageSearchResult(known, transcript.size, cache_hit=True)
        indexes: list[Index] = []
        behind: list[_Behind] = []
        room, to_the_end = SLICE, True
        for tally in transcript.audience_counts:
            index_key = (transcripts.actor.tenant, session_id, tally.audience, tally.stamp)
            index = at_hand[index_key] = self._index(index_key)
            indexes.append(index)
            if index.size < tally.messages:
                missing, room, complete = await _missing(index, transcript, tally, room)
                behind.append(_Behind(index_key, index, missing))
                to_the_end &= complete
        return _Looked(key, transcript.size, indexes, behind, to_the_end)

    def _index(self, key: IndexKey) -> Index:
        index: Index = self.in_use.get(key) or self.indexes.get(key) or Index()
        self.in_use[key] = index
        return index

    async def _found(
        self, actor: Actor, session_id: str, wanted: MessageQuery, looked: _Looked, hits: Sequence[MessageHit]
    ) -> MessageSearchResult:
        """Return the messages that were hit, each as far as it is for the caller when it is read."""
        previews = Previews(wanted.query)
        results: list[MessageMatch] = []
        weight, unchanged, turns = memory_size(wanted), True, TimeSlices()
        # Also without a hit: whether the caller may still look is asked at the end.
        for start in range(0, max(1, len(hits)), _HITS_PER_READ):
            some = hits[start : start + _HITS_PER_READ]
            shown = await self.reads.read(actor, partial(_show, session_id, wanted, some))
            unchanged &= shown.key == looked.key
            for hit in some:
                if message := shown.messages.get(hit.message_id):
                    results.append(_result(message, hit, previews))
                    weight += memory_size(results[-1])
                    await turns.give()
        if unchanged:
            self.answers.put(looked.key, results, weight)
        return MessageSearchResult(results, looked.size, cache_hit=False)


def _key(transcripts: Transcripts, transcript: Transcript, wanted: MessageQuery) -> Hashable:
    # With the caller, who would learn from another's answer what the other has asked.
    return (transcripts.actor.tenant, transcripts.actor.principal_id, transcript.state, wanted)


async def _show(session_id: str, wanted: MessageQuery, hits: Iterable[MessageHit], transcripts: Transcripts) -> _Shown:
    transcript = await transcripts.to_read(session_id, *wanted.visibilities)
    found = await transcript.messages.find_several(session_id, [hit.message_id for hit in hits])
    messages = {message.message_id: message for message in found if message.audience in transcript.audiences}
    return _Shown(_key(transcripts, transcript, wanted), messages)


async def _missing(
    index: Index, transcript: Transcript, tally: AudienceCount, room: int
) -> tuple[list[_Entry], int, bool]:
    """Read on from where an index ends; return what came, what room is left, and whether that is all there is."""
    missing: list[_Entry] = []
    known, last_id, limit = index.size, index.last_id, _FEWEST_PER_READ
    while room > 0 and known + len(missing) < tally.messages:
        excerpt = Excerpt((tally.audience,), TranscriptRange(after=last_id, limit=limit))
        messages = await transcript.messages.read(transcript.session.session_id, excerpt)
        if not messages:
            break
        missing += map(_entry, messages)
        last_id = messages[-1].message_id
        characters = sum(map(_characters, messages))
        room -= characters
        limit = min(2 * limit, _MOST_PER_READ) if characters < limit * _LONG else _FEWEST_PER_READ
    return missing, room, known + len(missing) >= tally.messages


def _characters(message: Message) -> int:
    return max(_LEAST, message.size)


def _entry(message: Message) -> _Entry:
    return _Entry(message.message_id, f"{message.sender} {message.content}", message.metadata)


async def _catch_up(behind: _Behind) -> None:
    pace = Pace(CHARACTERS_PER_STEP)
    await asyncio.sleep(0)
    for entry in behind.missing:
        # Whoever searched meanwhile may have added it.
        if entry.message_id > behind.to.last_id:
            behind.to.add(entry.message_id, entry.text, metadata_text(msgspec.json.decode(entry.metadata)))
            if pace.is_over(len(entry.text) + len(entry.metadata)):
                await asyncio.sleep(0)


async def _in_steps(indexes: Sequence[Index], wanted: MessageQuery) -> list[MessageHit]:
    """Search without keeping others waiting."""
    steps = search_in_steps(
        indexes,
        wanted.query,
        threshold=wanted.threshold,
        limit=wanted.limit,
        with_metadata=wanted.with_metadata,
    )
    turns = TimeSlices()
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            hits: list[MessageHit] = finished.value
            return hits
        await turns.give()


def _result(message: Message, hit: MessageHit, previews: Previews) -> MessageMatch:
    return MessageMatch(
        message=message_info(message),
        score=round(hit.score, 1),
        match_preview=previews.of(message.content),
        relevance="high" if hit.score >= _HIGH else "medium" if hit.score >= _MEDIUM else "low",
        matched_by=hit.matched_by,
    )
