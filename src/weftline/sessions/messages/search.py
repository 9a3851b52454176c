"""Message search through cached in-memory indexes, and the part of a text that matches."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec
from rapidfuzz import fuzz, process

from weftline.indexing.chunking.model import sentence_ends
from weftline.indexing.text_analysis import TOKEN, query_words, stem, words
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Response
from weftline.kernel.ports import CacheKey, Transactions, ValueCache, memory_size
from weftline.kernel.thread_pools import SEARCH_THREADS, short_turns
from weftline.sessions.messages.fuzzy_ranking import (
    MIN_FUZZY_LENGTH,
    MIN_RATIO,
    MessageHit,
    MessageIndex,
    metadata_text,
    search_in_steps,
)
from weftline.sessions.messages.model import Excerpt, Message, TranscriptRange, Visibility
from weftline.sessions.messages.operations import MessageInfo, message_info
from weftline.sessions.messages.transcript import Transcripts

if TYPE_CHECKING:
    from weftline.sessions.messages.model import AudienceCount
    from weftline.sessions.messages.transcript import Transcript


# Snippets: the part of a text that matches a query.

_MAX_LENGTH = 200
_ELLIPSIS = "…"
# Maximum distance by which a cut moves to a word boundary.
_MAX_CUT_SHIFT = 30
_MAX_PARTIAL_RATIO_LENGTH = 64
# Fuzzy comparison costs time proportional to the text for each word: only the first words of the query are compared.
_MAX_FUZZY_WORDS = 32
_GAP = re.compile(r"\s+")
# Smaller differences of sums come from rounding.
_EPSILON = 1e-9


class _TermMatch(NamedTuple):
    """A match in the text, with its query stem."""

    start: int
    end: int
    root: str


def snippet(content: str, query: str) -> str:
    """Return the part of the content that matches most of the query; short content is returned whole."""
    return Snippets(query).of(content)


class Snippets:
    """Snippets of texts for one query, of at most ``max_length`` characters each."""

    def __init__(self, query: str, max_length: int = _MAX_LENGTH) -> None:
        self._query = query
        self._max_length = max_length
        self._window = max_length - 2 * len(_ELLIPSIS)
        self._query_stems = {stem(word): word for word in query_words(query)}
        self._prefixes = {root for root in self._query_stems if len(root) >= MIN_FUZZY_LENGTH}
        self._prefix_lengths = sorted(set(map(len, self._prefixes)))

    def of(self, content: str) -> str:
        """Return the part of the content that matches most of the query; short content is returned whole."""
        if len(content) <= self._max_length:
            return content
        matches_found = self._matches(content)
        first, last = _densest(matches_found, self._window) if matches_found else _nearest(content, self._query)
        return _cut(content, first, last, self._window)

    def _matches(self, content: str) -> list[_TermMatch]:
        matches = list(TOKEN.finditer(content))
        stems = self._matching_tokens({match.group() for match in matches})
        return [
            _TermMatch(match.start(), match.end(), root)
            for match in matches
            if (root := stems.get(match.group())) is not None
        ]

    def _matching_tokens(self, tokens: set[str]) -> dict[str, str]:
        """Return the tokens that match the query, exactly, by prefix or by similar spelling, with their query stems."""
        stems: dict[str, str] = {}
        unmatched: dict[str, str] = {}
        for token in tokens:
            for word in words(token):
                if root := self._query_stem(stem(word)):
                    stems[token] = root
                    break
                if len(word) >= MIN_FUZZY_LENGTH:
                    unmatched[word] = token
        for word, root in self._similar_words(unmatched, set(stems.values())):
            stems.setdefault(unmatched[word], root)
        return stems

    def _query_stem(self, root: str) -> str | None:
        if root in self._query_stems:
            return root
        return next((root[:length] for length in self._prefix_lengths if root[:length] in self._prefixes), None)

    def _similar_words(self, unmatched: dict[str, str], found: set[str]) -> Iterator[tuple[str, str]]:
        """Yield words spelled similarly to a query word that does not occur."""
        missing = [root for root in self._query_stems if root not in found]
        for root in missing[:_MAX_FUZZY_WORDS]:
            query_word = self._query_stems[root]
            for word, _, _ in process.extract(
                query_word, unmatched.keys(), scorer=fuzz.ratio, score_cutoff=MIN_RATIO, limit=None
            ):
                yield word, root


def _densest(matches_found: Sequence[_TermMatch], window: int) -> tuple[int, int]:
    """Return the range with the most distinct query words; of equal ones, with those that are rare in the text."""
    # Rarity only decides between equal numbers of words: all that a text has add up to less than one.
    occurrences = Counter(match_found.root for match_found in matches_found)
    worth = {root: 1 + 1 / (count * (len(occurrences) + 1)) for root, count in occurrences.items()}
    best, best_found, left, found = (0, 0), 0.0, 0, 0.0
    counts: Counter[str] = Counter()
    for match_found in matches_found:
        found += 0 if counts[match_found.root] else worth[match_found.root]
        counts[match_found.root] += 1
        # No wider than needed, so that the words that count are in the middle.
        while (first := matches_found[left]) is not match_found and (
            counts[first.root] > 1 or match_found.end - first.start > window
        ):
            counts[first.root] -= 1
            found -= 0 if counts[first.root] else worth[first.root]
            left += 1
        if found > best_found + _EPSILON:
            best, best_found = (matches_found[left].start, match_found.end), found
    return best


def _nearest(content: str, query: str) -> tuple[int, int]:
    """Return the range most similar to the query by RapidFuzz; the beginning if there is none."""
    if len(query) > _MAX_PARTIAL_RATIO_LENGTH:
        return 0, 0
    found = fuzz.partial_ratio_alignment(query.lower(), content.lower(), score_cutoff=MIN_RATIO)
    return (found.dest_start, min(found.dest_end, len(content))) if found else (0, 0)


def _cut(content: str, first: int, last: int, window: int) -> str:
    """Return the text around a match: whole sentences where they fit, else cut at word boundaries if one is near."""
    # The match is centred: its context before is as useful as that after it.
    start = max(0, min((first + last - window) // 2, len(content) - window))
    if start:
        start = next((at for at, _ in sentence_ends(content, start, first + 1)), 0) or _word_start(
            content, start, first
        )
    end = min(start + window, len(content))
    if end < len(content):
        end = max((at for at, _ in sentence_ends(content, last, end + 1)), default=0) or _word_end(content, last, end)
    return f"{_ELLIPSIS if start else ''}{content[start:end].rstrip()}{_ELLIPSIS if end < len(content) else ''}"


def _word_start(content: str, start: int, first: int) -> int:
    gap = _GAP.search(content, start, max(start, min(first, start + _MAX_CUT_SHIFT)))
    return gap.end() if gap else start


def _word_end(content: str, last: int, end: int) -> int:
    return max((gap.start() for gap in _GAP.finditer(content, max(last, end - _MAX_CUT_SHIFT), end)), default=end)


# Message search through cached inverted indexes.
#
# Each audience of a session has its own index, so that hidden messages cannot affect visible ones. An index is valid
# for the stamp of its audience; new messages are added to it by the next search.
#
# A transaction reads a slice of the transcript, counted in characters, or the messages of a few hits; threads process
# them outside of it.

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
