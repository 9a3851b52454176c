"""Retrieval for a prompt: the best passages for a task, and why every other candidate was left out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec import structs

from weftline.indexing.collections import SOURCES, WINDOWS, Source
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.records.vocabulary import OmissionReason
from weftline.search.model import (
    LIKELY_PROBABILITY,
    OmittedChunk,
    Query,
    Ranked,
    RankingWeights,
    is_near_duplicate,
)
from weftline.search.neighbours import PassageRef, TextLine, passage_ref, with_surroundings
from weftline.search.passages import ChunkPassage, unreadable_reasons
from weftline.search.references import Reference
from weftline.search.results import PendingItems, pending_items
from weftline.search.retriever import RetrievalResult, SearchHit, SearchScope
from weftline.search.scope import RequestedScope
from weftline.search.task_queries import Turn, continued_query, is_empty, task_queries
from weftline.state.agent_context.sql import PinnedContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.identity import Actor
    from weftline.search.retriever import Retriever

# Collection and number.
ChunkKey = tuple[str, int]

# Minimum tokens of a typical message: bounds the number of results that can be used.
_MIN_PASSAGE_TOKENS = 20
_MIN_RESULTS, _MAX_RESULTS = 5, 200
# Fewer passages by this factor if a budget is spent.
_REDUCTION = 4
# Neighbours further away are mostly about something else.
SURROUNDING_PLACES = 2
# One more passage is worth more than the surroundings of those behind this many.
_MAX_SURROUNDED = 96
# A conversation that fits is part of the prompt anyway.
_AWAITED: frozenset[Source] = frozenset(SOURCES) - {"event"}
# Fewer equal terms may be a coincidence.
_MIN_DUPLICATE_TERMS = 4


# By default, being evidence decides, not a score.
EVERY_SCORE = RankingWeights(min_score=0.0)


class RetrievalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to retrieve for a task.

    ``task`` may have any length, see task_queries; ``turns`` are those before it, newest first. ``max_tokens`` is the
    room for passages; it bounds their number. ``asked_at`` is the time, in microseconds, that recency is measured
    against: the clock plays no part. ``window`` is the place of the window to search, SESSION:AGENT, which the caller
    may open; by default its own. ``surroundings``: places before and after each passage to return with it. ``reduced``:
    a quarter of the passages, without doubtful ones and without surroundings, to spend less.
    ``held`` is the snapshot of the session. ``whole_conversation``: the prompt has room for all of the window, so that
    nothing of it needs to be found.
    """

    task: str
    asked_at: int
    max_tokens: int
    turns: tuple[Turn, ...] = ()
    session_id: str | None = None
    window: str | None = None
    domains: tuple[str, ...] = ()
    sources: frozenset[Source] | None = None
    weights: RankingWeights = EVERY_SCORE
    tuned: bool = False
    surroundings: int = SURROUNDING_PLACES
    reduced: bool = False
    held: PinnedContext | None = None
    whole_conversation: bool = False


class RetrievedPassage(msgspec.Struct, frozen=True, kw_only=True):
    """A passage for a prompt.

    ``score`` is its relevance from 0 to 1, ``signals`` add up to ``evidence``. ``probability`` is that of being
    evidence for the task, ``doubtful`` if its collection probably holds none. ``surroundings`` are the passages
    before and after it, nearest first, each only with its nearest result.
    """

    passage: ChunkPassage
    score: float
    evidence: float
    signals: dict[str, float]
    pinned: bool
    probability: float = 0.0
    doubtful: bool = False
    surroundings: tuple[PassageRef, ...] = ()

    @property
    def text(self) -> str:
        return self.passage.text

    @property
    def uri(self) -> str:
        """Return the URI of the item, with its version."""
        return self.passage.uri

    @property
    def chunk_id(self) -> str:
        return self.passage.chunk_id

    @property
    def source(self) -> Source:
        return self.passage.chunk.source

    @property
    def tokens(self) -> int:
        """Return the approximate tokens of the text."""
        return self.passage.chunk.tokens

    @property
    def is_evidence(self) -> bool:
        """Whether the passage is likely evidence for the task, not only worth its tokens."""
        return not self.doubtful and self.probability >= LIKELY_PROBABILITY


class OmittedPassage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A candidate that was left out. ``chunk_id`` is None if the caller may not know it any more."""

    chunk_id: str | None
    score: float | None
    reason: OmissionReason


class Retrieved(msgspec.Struct, frozen=True, kw_only=True):
    """Passages for a task, best first, and every other scored candidate exactly once.

    ``confidence``: likelihood, from 0 to 1, that the passages contain what the task needs.
    ``fallback``: nothing is evidence, so the newest turns of the conversation have the room.
    ``pins_truncated``: there were more pinned chunks than a search returns. ``model`` is None if only keywords were
    matched. ``queries`` are the texts that were searched, ``references`` what phrases of them stand for.
    """

    passages: list[RetrievedPassage]
    omitted: list[OmittedPassage]
    confidence: float
    fallback: Literal["recency"] | None
    pins_truncated: bool
    searched: int
    pending: PendingItems
    model: str | None
    scope: SearchScope
    queries: list[str]
    references: tuple[Reference, ...] = ()


async def retrieve(retriever: Retriever, actor: Actor, request: RetrievalRequest) -> Retrieved:
    """Return the best passages for a task, all pins, and why every other candidate was left out.

    The queries of a long task are searched separately, and each candidate counts with its best score. A task of few
    words that finds no evidence is searched together with the turns before it. Deterministic: the same state and
    request give the same result.
    """
    texts, asked = await SEARCH_THREADS.run(task_queries, request.task, request.turns)
    continued = await SEARCH_THREADS.run(continued_query, request.task, request.turns)
    top_k = results_within(request.max_tokens)
    if request.reduced:
        top_k = max(_MIN_RESULTS, top_k // _REDUCTION)

    def query_of(text: str, *, in_doubt: bool) -> Query:
        return Query(
            text=text,
            asked_at=request.asked_at,
            top_k=top_k,
            weights=request.weights,
            tuned=request.tuned,
            purpose="prompt",
            complete=True,
            in_doubt=in_doubt and not request.reduced,
            is_task=True,
        )

    scope = _scope_of(request, asked)
    results: list[RetrievalResult] = []
    if continued is not None and is_empty(request.task):
        texts = []
    else:
        queries = [query_of(text, in_doubt=True) for text in texts or [""]]
        results = await retriever.find_each(actor, queries, scope, report=continued is None)
    if continued is not None and not any(result.ranking.has_evidence for result in results):
        # "Go on" finds nothing by itself: what it goes on with may, outside of the conversation that it goes on with.
        # That may be about anything, so that a doubtful match with it says nothing about the task.
        texts = [*texts, continued]
        elsewhere = structs.replace(scope, sources=(scope.sources or frozenset(SOURCES)) - {"event"})
        results = [*results, *await retriever.find_each(actor, [query_of(continued, in_doubt=False)], elsewhere)]
    found = _fused(results)
    gone = found.unreadable.difference(found.hits)
    reasons = (
        await retriever.stores.read(actor, partial(unreadable_reasons, gone, request.held), heavy=True) if gone else {}
    )
    selection = _select(found, top_k)
    return Retrieved(
        passages=await surrounded_passages(
            retriever, actor, selection.kept, 0 if request.reduced else request.surroundings
        ),
        omitted=_omitted(found, selection, reasons),
        confidence=found.confidence,
        fallback=None if any(result.ranking.relevant for result in results) else "recency",
        pins_truncated=any(result.ranking.pins_truncated for result in results),
        searched=results[0].ranking.searched,
        pending=pending_items(results[0].scope),
        model=results[0].model,
        scope=results[0].scope,
        queries=texts,
        references=tuple(dict.fromkeys(reference for result in results for reference in result.references)),
    )


def results_within(max_tokens: int) -> int:
    """Return the number of results that can be used within a number of tokens."""
    return min(_MAX_RESULTS, max(_MIN_RESULTS, max_tokens // _MIN_PASSAGE_TOKENS))


def _scope_of(request: RetrievalRequest, asked: frozenset[int]) -> RequestedScope:
    return RequestedScope(
        domains=request.domains,
        session_id=request.session_id,
        window=request.window,
        asked=asked,
        sources=request.sources,
        waits_for=_AWAITED if request.whole_conversation else frozenset(SOURCES),
        held=request.held,
    )


class _Found(NamedTuple):
    """Hits and omitted candidates of all queries, each with its best score."""

    results: Sequence[RetrievalResult]
    hits: dict[ChunkKey, SearchHit]
    omissions: dict[ChunkKey, OmittedChunk]
    unreadable: frozenset[ChunkKey]

    @property
    def confidence(self) -> float:
        return max(result.ranking.confidence for result in self.results)


class _Selection(NamedTuple):
    """Hits that are kept, best first, and those that are left out with the reason."""

    kept: list[SearchHit]
    omitted: dict[ChunkKey, OmissionReason]


def _fused(results: Sequence[RetrievalResult]) -> _Found:
    hits: dict[ChunkKey, SearchHit] = {}
    omissions: dict[ChunkKey, OmittedChunk] = {}
    for result in results:
        for hit in (*result.hits, *result.pinned):
            key = _key_of(hit.ranked)
            if key not in hits or _rank_key(hit) < _rank_key(hits[key]):
                hits[key] = hit
        for each in result.ranking.omitted:
            key = _key_of(each)
            if key not in omissions or omissions[key].score < each.score:
                omissions[key] = each
    unreadable = frozenset[ChunkKey]().union(*(result.unreadable for result in results))
    return _Found(results, hits, omissions, unreadable)


def _select(found: _Found, top_k: int) -> _Selection:
    """Keep all pins and the best others, without those that only repeat a better one."""
    max_results = found.results[0].scope.allowance.results
    limit = top_k if max_results is None else min(top_k, max_results)
    ordered = sorted(found.hits.values(), key=_rank_key)
    kept = [hit for hit in ordered if hit.ranked.pinned]
    covered = _Coverage(kept)
    omitted: dict[ChunkKey, OmissionReason] = {}
    for hit in (hit for hit in ordered if not hit.ranked.pinned):
        if covered.includes(hit):
            omitted[_key_of(hit.ranked)] = "duplicate_coverage"
        elif limit > 0:
            kept.append(hit)
            covered.add(hit)
            limit -= 1
        else:
            omitted[_key_of(hit.ranked)] = "budget"
    return _Selection(sorted(kept, key=_rank_key), omitted)


class _Coverage:
    """Terms of the passages that are kept, to detect those that only repeat them.

    A passage repeats one of another document or session if it has the same terms in the same order, or if ranking found
    it to be a near-duplicate and its terms are part of the other's: texts that differ in a number are both kept.
    """

    def __init__(self, hits: Iterable[SearchHit]) -> None:
        self._lines_by_terms: dict[str, set[TextLine]] = {}
        for hit in hits:
            self.add(hit)

    def add(self, hit: SearchHit) -> None:
        self._lines_by_terms.setdefault(_terms_of(hit), set()).add(_line_of(hit))

    def includes(self, hit: SearchHit) -> bool:
        terms, line = _terms_of(hit), {_line_of(hit)}
        if len(terms.split()) < _MIN_DUPLICATE_TERMS:
            return False
        if self._lines_by_terms.get(terms, set()) - line:
            return True
        return is_near_duplicate(hit.ranked) and any(
            terms in others and lines - line for others, lines in self._lines_by_terms.items()
        )


def _terms_of(hit: SearchHit) -> str:
    """Return the terms of a passage, between spaces, so that only whole terms are found in it."""
    return f" {hit.passage.chunk.terms} "


def _line_of(hit: SearchHit) -> TextLine:
    return passage_ref(hit.passage, 0).line


def _rank_key(hit: SearchHit) -> tuple[bool, float, float, str, int]:
    """Sort key: doubtful ones last, then best first; of equals the newest first."""
    ranked = hit.ranked
    return ranked.doubtful, -ranked.evidence, -hit.passage.chunk.timestamp, ranked.collection, ranked.number


def _key_of(ranked: Ranked | OmittedChunk) -> ChunkKey:
    return ranked.collection, ranked.number


def _has_surroundings(hit: SearchHit) -> bool:
    ranked = hit.ranked
    if ranked.pinned or ranked.doubtful:
        return False
    return ranked.collection == WINDOWS or ranked.probability >= LIKELY_PROBABILITY


async def surrounded_passages(
    retriever: Retriever, actor: Actor, hits: Sequence[SearchHit], reach: int
) -> list[RetrievedPassage]:
    """Return passages: likely evidence, and turns of the reader's conversation, with their surroundings."""
    surrounded = [hit for hit in hits if _has_surroundings(hit)][:_MAX_SURROUNDED]
    alone = [hit for hit in hits if hit not in surrounded]
    around: dict[str, list[PassageRef]] = {}
    if reach and surrounded:
        passages = [hit.passage for hit in (*alone, *surrounded)]
        read = partial(with_surroundings, passages, reach, alone=len(alone))
        refs = await retriever.stores.read(actor, read, heavy=True)
        for ref in sorted(
            (ref for ref in refs if ref.distance), key=lambda ref: (ref.distance, ref.rank, ref.position)
        ):
            around.setdefault(passages[ref.rank].chunk_id, []).append(ref)
    return [
        RetrievedPassage(
            passage=hit.passage,
            score=hit.ranked.score,
            evidence=hit.ranked.evidence,
            signals=hit.ranked.signals,
            pinned=hit.ranked.pinned,
            probability=hit.ranked.probability,
            doubtful=hit.ranked.doubtful,
            surroundings=tuple(around.get(hit.passage.chunk_id, ())),
        )
        for hit in hits
    ]


def _omitted(
    found: _Found, selection: _Selection, unreadable: Mapping[ChunkKey, OmissionReason]
) -> list[OmittedPassage]:
    """Return every candidate that was left out, best first; those that cannot be read any more last."""
    omitted = [
        OmittedPassage(chunk_id=_chunk_id(key), score=found.hits[key].ranked.score, reason=reason)
        for key, reason in selection.omitted.items()
    ]
    omitted += [
        OmittedPassage(chunk_id=_chunk_id(key), score=each.score, reason=each.reason)
        for key, each in found.omissions.items()
        if key not in found.hits and key not in unreadable
    ]
    omitted.sort(key=lambda each: (-(each.score or 0.0), each.chunk_id or ""))
    return omitted + [
        OmittedPassage(chunk_id=None if reason == "missing_permission" else _chunk_id(key), score=None, reason=reason)
        for key, reason in sorted(unreadable.items())
    ]


def _chunk_id(key: ChunkKey) -> str:
    return f"{key[0]}/{key[1]}"
