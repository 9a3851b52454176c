"""Retriever: resolves the scope, ranks by keywords and meaning, then reads what is still readable."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import structs

from weftline.access.plans import Allowance
from weftline.indexing.collections import MEMORY
from weftline.indexing.embeddings import (
    EmbedderUnavailable,
    Embeddings,
    SemanticSearchOff,
    TextRefused,
    query_model,
    semantic_search_off,
    serving_model,
)
from weftline.indexing.model_migration import QuerySample, overlap, rank_correlation
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import NotFound
from weftline.kernel.events import NewEvent
from weftline.kernel.identity import PRINCIPAL
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.search.model import Query, Ranked, Ranking, RankingWeights
from weftline.search.passages import ChunkPassage, read_handle, read_numbers, read_siblings
from weftline.search.persistent_memory import readable_places
from weftline.search.pulled_memory import PulledMemory, PulledTexts, pulled_memory
from weftline.search.references import expanded_query, may_refer, recent_items, resolve_references
from weftline.search.scope import resolve_scope
from weftline.sessions.messages.model import ADMINS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from weftline.indexing.embeddings import Vectors
    from weftline.kernel.identity import Actor
    from weftline.kernel.ports import Transactions
    from weftline.search.model import CollectionQuery, Floats, View, Views
    from weftline.search.persistent_memory import IndexWait, SearchStores
    from weftline.search.references import Reference
    from weftline.search.scope import RequestedScope


# Expired items, and those of a session being deleted, stay in the collection for a short time. So they are detected by
# reading this many of the nearest results, up to this many times.
_PROBE_SIZE = 256
_MAX_PROBES = 16
_OFF_FOR_SESSION = "turned off for this session"
_MODEL_UNAVAILABLE = "the embedding model is unavailable"
# A query that the model being migrated to does not embed in time is answered by the serving one.
_CANARY_SECONDS = 2.0


# A chunk by its collection and number.
_Key = tuple[str, int]
# Embeds texts, one row each; None if the model is unavailable and only keywords can be matched.
Embed = Callable[["Sequence[str]"], Awaitable["Vectors | None"]]


class Rank(Protocol):
    """Ranks the rows of views for a query."""

    async def __call__(self, query: Query, views: Sequence[View], embed: Embed) -> Ranking: ...


class SearchReporter(Protocol):
    """Reports searches without relevant results, without delaying the search."""

    async def report(self, actor: Actor, event: NewEvent) -> None: ...


class QueryTrials(Protocol):
    """Compares two models on the queries of a tenant that migrates between them."""

    def record_query(self, tenant: str, collection: str, text: str) -> None:
        """Remember a query if the tenant migrates."""
        ...

    def compare_later(self, tenant: str, work: Callable[[], Coroutine[Any, Any, QuerySample | None]]) -> None:
        """Compare a query in the background, unless one is being compared."""
        ...

    def count_failure(self, tenant: str) -> None:
        """Count a query that the new model could not answer."""
        ...


class _NewModelFailed(Exception):
    """The model being migrated to could not embed a query."""


class SearchRequest(NamedTuple):
    """A query and the scope to search."""

    query: Query
    filters: RequestedScope


class SearchHit(NamedTuple):
    """A result with its score and its text."""

    ranked: Ranked
    passage: ChunkPassage


class SearchScope(NamedTuple):
    """What is searched, with which model, and what the plan allows.

    ``partial``: a replica is being rebuilt, so not everything can be found yet. ``semantic_off``: why nothing
    in scope has vectors; empty if something may. ``own_pending``: the unindexed events that the caller itself caused.
    ``own_by_words``: its last chunk of each collection that is found by words only so far.
    ``fallback_model``: the serving model, if the one it is being migrated to answers this query. ``pulled``: the memory
    of the session, if it has a snapshot.
    """

    queries: Sequence[CollectionQuery]
    model: str
    allowance: Allowance
    pending_documents: int
    pending_events: int
    partial: bool = False
    semantic_off: str = ""
    own_pending: tuple[int, ...] = ()
    own_by_words: Mapping[str, int] = MappingProxyType({})
    fallback_model: str | None = None
    pulled: PulledMemory | None = None

    def with_fallback(self) -> SearchScope:
        """Return the same scope for the serving model."""
        return self if self.fallback_model is None else self._replace(model=self.fallback_model, fallback_model=None)


class RetrievalResult(NamedTuple):
    """Results of a search, and pinned items. ``model`` is None if only keywords were matched.

    ``unreadable``: candidates, as (collection, number), that the caller may not read any more. ``references``: what
    phrases of the query stand for, such as "that file".
    """

    hits: list[SearchHit]
    pinned: list[SearchHit]
    ranking: Ranking
    scope: SearchScope
    model: str | None
    unreadable: frozenset[tuple[str, int]] = frozenset()
    references: tuple[Reference, ...] = ()

    @property
    def lexical_only(self) -> str:
        """Return why only keywords were matched; empty if meaning was matched, too."""
        return "" if self.model else self.scope.semantic_off or _MODEL_UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Retriever:
    """Searches everything a caller may read."""

    stores: Transactions[SearchStores]
    views: Views
    embeddings: Embeddings
    rank: Rank
    clock: Clock
    # Called with tenant, collection and query text: a model migration replays recent queries to compare models.
    trials: QueryTrials
    reporter: SearchReporter
    index_wait: IndexWait
    pulled_texts: PulledTexts

    async def find(self, actor: Actor, request: SearchRequest) -> RetrievalResult:
        """Return the best results, best first, and the pinned items in scope."""
        (result,) = await self.find_each(actor, [request.query], request.filters)
        return result

    async def find_each(
        self, actor: Actor, queries: Sequence[Query], filters: RequestedScope, *, report: bool = True
    ) -> list[RetrievalResult]:
        """Return the results of several queries in one scope, with references to recent items of a named session.

        ``report``: tell those who improve the search if nothing is relevant.
        """
        scope, views = await self.open_scope(actor, filters, queries[0].text)
        references = [await self._references(actor, query.text, filters) for query in queries]
        for query, collection_query in product(queries, scope.queries):
            self.trials.record_query(actor.tenant, collection_query.collection, query.text)
        expanded = [
            structs.replace(query, text=expanded_query(query.text, found))
            for query, found in zip(queries, references, strict=True)
        ]
        capped = [_within_plan(query, scope.allowance) for query in expanded]
        started = time.monotonic()
        try:
            ranked = await self._rank_each(actor, capped, scope, views)
        except _NewModelFailed:
            self.trials.count_failure(actor.tenant)
            scope = scope.with_fallback()
            ranked = await self._rank_each(actor, capped, scope, await self._open_views(actor, scope))
        if scope.fallback_model is not None and len(queries) == 1:
            taken = time.monotonic() - started
            self.trials.compare_later(actor.tenant, partial(self._compare, actor, capped[0], ranked[0], taken))
        results = [result._replace(references=found) for result, found in zip(ranked, references, strict=True)]
        if report and not scope.partial and not any(result.ranking.relevant for result in results):
            await self.reporter.report(actor, _low_relevance(actor, queries[0], filters, results[0].ranking))
        return results

    async def _rank_each(
        self, actor: Actor, queries: Sequence[Query], scope: SearchScope, views: Sequence[View]
    ) -> list[RetrievalResult]:
        embed = partial(self._embed_queries, actor, scope)
        return await asyncio.gather(*(self._ranked(actor, query, scope, views, embed) for query in queries))

    async def _compare(self, actor: Actor, query: Query, after: RetrievalResult, taken: float) -> QuerySample | None:
        """Answer a query with the serving model too, and compare; None if that model is unavailable."""
        scope, started = after.scope.with_fallback(), time.monotonic()
        (before,) = await self._rank_each(actor, [query], scope, await self._open_views(actor, scope))
        if before.model is None or after.model is None:
            return None
        old, new = ([(hit.ranked.collection, hit.ranked.number) for hit in result.hits] for result in (before, after))
        return QuerySample(
            overlap=overlap(old, new),
            correlation=rank_correlation(old, new),
            results_before=len(old),
            results_after=len(new),
            confidence_before=before.ranking.confidence,
            confidence_after=after.ranking.confidence,
            ms_before=1_000 * (time.monotonic() - started),
            ms_after=1_000 * taken,
        )

    async def _references(self, actor: Actor, query: str, filters: RequestedScope) -> tuple[Reference, ...]:
        if filters.session_id is None or not may_refer(query):
            return ()
        recent = await self.stores.read(actor, partial(recent_items, filters.session_id, filters.window), heavy=True)
        return tuple(await SEARCH_THREADS.run(resolve_references, query, recent, actor.principal_id))

    async def open_scope(
        self, actor: Actor, filters: RequestedScope, query: str | None = None
    ) -> tuple[SearchScope, list[View]]:
        """Resolve a scope, wait briefly for what the caller has just written, and open the views.

        A query may be among those that the model being migrated to answers.
        """
        resolve = partial(self._resolve, filters, query)
        scope, started = await self.stores.read(actor, resolve, heavy=True), asyncio.get_running_loop().time()
        if scope.own_pending and await self.index_wait.until_indexed(actor, scope.own_pending):
            scope = _without_indexed(await self.stores.read(actor, resolve, heavy=True), scope.own_pending)
        if scope.own_by_words and await self.index_wait.until_embedded(actor, scope.own_by_words, started):
            scope = scope._replace(own_by_words={})
        if scope.pulled is not None:
            scope = scope._replace(pulled=await self.pulled_texts.chunk(actor, scope.pulled))
        views = await self._open_views(actor, scope)
        return scope._replace(partial=any(view.lag for view in views)), views

    async def read(self, actor: Actor, ranked: Iterable[Ranked], scope: SearchScope) -> list[SearchHit]:
        """Return the chunks that the caller may read now, in the same order."""
        candidates = {(each.collection, each.number): each for each in ranked}
        passages = await self._read(actor, list(candidates), scope)
        return [SearchHit(each, passage) for key, each in candidates.items() if (passage := passages[key]) is not None]

    async def _read(self, actor: Actor, keys: Sequence[_Key], scope: SearchScope) -> dict[_Key, ChunkPassage | None]:
        passages = await self.stores.read(actor, partial(read_numbers, keys, scope.pulled), heavy=True)
        return {key: passages.get(f"{key[0]}/{key[1]}") for key in keys}

    async def open_passage(self, actor: Actor, handle: str, filters: RequestedScope) -> ChunkPassage | None:
        """Return the passage of a search result, by its chunk id; None if the caller may not read it in this scope."""
        passage = await self.stores.read(actor, partial(read_handle, handle, filters))
        return passage if passage is not None and filters.includes_session(passage.session_id) else None

    async def _open_views(self, actor: Actor, scope: SearchScope, gone: Iterable[tuple[str, int]] = ()) -> list[View]:
        """Open the views of a scope, without chunks that were found to be deleted."""
        without: defaultdict[str, set[int]] = defaultdict(set)
        for collection, number in gone:
            without[collection].add(number)
        wishes = [query._replace(without=query.without.union(without[query.collection])) for query in scope.queries]
        opened = (self.views.open(actor.tenant, query, actor, scope.model) for query in wishes)
        views = list(await asyncio.gather(*opened))
        pulled = scope.pulled
        if pulled is not None and pulled.chunks:
            chunks = await self.pulled_texts.indexed_chunks(actor, pulled, None if scope.semantic_off else scope.model)
            query = next(query for query in wishes if query.collection == MEMORY)
            # The index has all of the others.
            views.append(await self.views.open_chunks(chunks, query._replace(places=None, items=None), actor))
        return views

    def now(self) -> int:
        return to_micros(self.clock.now())

    async def _resolve(self, filters: RequestedScope, query: str | None, stores: SearchStores) -> SearchScope:
        pending = await stores.lag.pending(stores.actor, filters, readable_places(stores.actor))
        pulled = await pulled_memory(filters, pending.memories, stores)
        visible = await resolve_scope(filters, stores, pulled)
        listed, known = await stores.models.listed(), self.embeddings.models()
        model, fallback = (serving_model(listed, known), None) if query is None else query_model(listed, known, query)
        semantic_off = await self._semantic_off(filters, stores)
        return SearchScope(
            visible.queries,
            model.name,
            await stores.domains.plans.allowance(),
            visible.pending_documents,
            pending.total,
            semantic_off=semantic_off,
            own_pending=pending.own,
            own_by_words={} if semantic_off else pending.by_words,
            fallback_model=None if fallback is None else fallback.name,
            pulled=pulled,
        )

    async def _semantic_off(self, filters: RequestedScope, stores: SearchStores) -> str:
        """Return why nothing in scope has vectors; empty if something may."""
        if reason := await semantic_search_off(stores.models, self.embeddings):
            return reason
        if filters.session_id is None or filters.searched_sources - filters.in_sessions - {"event"}:
            return ""
        session = await stores.sessions.find(filters.session_id)
        return "" if session is None or session.config.semantic_search else _OFF_FOR_SESSION

    async def _embed_queries(self, actor: Actor, scope: SearchScope, texts: Sequence[str]) -> Vectors | None:
        if scope.semantic_off:
            return None
        limit = None if scope.fallback_model is None else _CANARY_SECONDS
        try:
            async with asyncio.timeout(limit):
                found = await asyncio.gather(*(self.embeddings.of_query(actor, text, scope.model) for text in texts))
        except (EmbedderUnavailable, TextRefused, TimeoutError) as error:
            if scope.fallback_model is not None:
                raise _NewModelFailed from error
            return None
        from numpy import stack  # noqa: PLC0415 - an embedder has loaded it already

        return stack(found)

    async def _ranked(
        self, actor: Actor, query: Query, scope: SearchScope, views: Sequence[View], embed: Embed
    ) -> RetrievalResult:
        """Rank; if results are gone, rank again without them, so that they affect neither order nor statistics."""
        read: dict[_Key, ChunkPassage | None] = {}
        ranking = await self.rank(query, views, embed)
        found, unreadable = await self._read_all(actor, ranking, scope, read)
        if unreadable:
            readable_views, probed = await self._readable_views(actor, query, scope, embed, unreadable, read)
            ranking = await self.rank(query, readable_views, embed)
            found, late = await self._read_all(actor, ranking, scope, read)
            unreadable |= probed | late
        hits, pinned = ([hit for hit in found if hit.ranked.pinned is pinned] for pinned in (False, True))
        model = scope.model if ranking.by_meaning else None
        return RetrievalResult(hits, pinned, ranking, scope, model, frozenset(unreadable))

    async def _read_all(
        self, actor: Actor, ranking: Ranking, scope: SearchScope, read: dict[_Key, ChunkPassage | None]
    ) -> tuple[list[SearchHit], set[_Key]]:
        """Return the results that the caller may read, and the others; ``read`` are those of the search so far."""
        ranked = {(each.collection, each.number): each for each in (*ranking.ranked, *ranking.pinned)}
        unread = [key for key in ranked if key not in read]
        if unread:
            read |= await self._read(actor, unread, scope)
        hits = [SearchHit(each, passage) for key, each in ranked.items() if (passage := read[key]) is not None]
        return hits, {key for key in ranked if read[key] is None}

    async def _readable_views(
        self,
        actor: Actor,
        query: Query,
        scope: SearchScope,
        embed: Embed,
        unreadable: set[_Key],
        read: dict[_Key, ChunkPassage | None],
    ) -> tuple[list[View], set[_Key]]:
        """Open the views without these chunks and other unreadable ones near the query; also return the others."""
        probe = structs.replace(
            query,
            top_k=_PROBE_SIZE,
            max_results=None,
            purpose="answer",
            low_confidence=True,
            complete=False,
            weights=RankingWeights(),
        )
        gone, found = set[_Key](), set[_Key]()
        for _ in range(_MAX_PROBES):
            found |= unreadable
            gone |= unreadable | await self.stores.read(actor, partial(read_siblings, unreadable), heavy=True)
            views = await self._open_views(actor, scope, gone)
            ranking = await self.rank(probe, views, embed)
            _, unreadable = await self._read_all(actor, ranking, scope, read)
            if not unreadable:
                break
        return views, found


def _without_indexed(scope: SearchScope, indexed: Collection[int]) -> SearchScope:
    """Do not count events that were indexed before their turn; the cursor has not passed them yet."""
    known = len(set(scope.own_pending) & set(indexed))
    return scope._replace(pending_events=max(0, scope.pending_events - known))


def _within_plan(query: Query, allowance: Allowance) -> Query:
    """Return a query with as many results as the plan allows; QuotaExceeded if it tunes a search that cannot be."""
    if query.tuned:
        allowance.check_tuning()
    most = allowance.results
    return structs.replace(
        query,
        top_k=query.top_k if most is None else min(query.top_k, most),
        max_results=most,
        weights=query.weights if allowance.tuning else RankingWeights(),
    )


def _low_relevance(actor: Actor, query: Query, filters: RequestedScope, ranking: Ranking) -> NewEvent:
    """Return the event for those who improve the search results; it does not contain the query."""
    return NewEvent(
        type="search.low_relevance",
        session_id=None,
        subject=actor.principal_id,
        actor=actor.participant,
        readable_by=(f"{PRINCIPAL}{actor.principal_id}", ADMINS),
        data={
            # Not every admin may know their names.
            "domains": len(filters.domains),
            "in_session": filters.session_id,
            "sources": sorted(filters.searched_sources),
            "searched": ranking.searched,
            "confidence": ranking.confidence,
            "min_score": query.weights.min_score,
        },
    )


# Searches for passages similar to a chunk or a text.

# Some of the nearest rows may be unreadable: if it is more than a few, more are read.
_EXTRA_ROWS = (10, 250, 4_000)


class ChunkNotFound(NotFound):
    """The chunk does not exist, or you may not read it."""

    code = "CHUNK_NOT_FOUND"
    hint = "Use a ref of a recent `search.query` result; a changed or deleted chunk has another one, or none."
    related = ("search",)


class Similar(NamedTuple):
    """Similar passages, most similar first."""

    hits: list[SearchHit]
    searched: int
    scope: SearchScope


@dataclass(frozen=True, slots=True)
class SimilarSearch:
    """Finds passages similar to a chunk or text, in a caller's scope."""

    retriever: Retriever
    actor: Actor
    filters: RequestedScope

    async def find(self, chunk_id: str | None, text: str | None, top_k: int, min_score: float) -> Similar:
        """Return the passages nearest in meaning to a chunk or a text, except the chunk itself."""
        origin = None if chunk_id is None else await self.passage(chunk_id)
        scope, views = await self.retriever.open_scope(self.actor, self.filters)
        if scope.semantic_off:
            raise SemanticSearchOff(f"Semantic search is off: {scope.semantic_off}.")
        query_text = text if origin is None else origin.chunk.embedded
        vector = await self.retriever.embeddings.of_query(self.actor, query_text or "", scope.model)
        most = scope.allowance.results
        limit = top_k if most is None else min(top_k, most)
        hits: list[SearchHit] = []
        for extra in _EXTRA_ROWS:
            found = [ranked for view in views for ranked in await _nearest(view, vector, limit + extra)]
            found.sort(key=lambda each: (-each.score, each.collection, each.number))
            others = [
                each for each in found if each.score >= min_score and f"{each.collection}/{each.number}" != chunk_id
            ]
            hits = await self.retriever.read(self.actor, others[: limit + extra], scope)
            if len(hits) >= limit or len(others) < limit + extra:
                break
        return Similar(hits[:limit], sum(view.size for view in views), scope)

    async def passage(self, chunk_id: str) -> ChunkPassage:
        """Return a chunk that the caller may read in its scope."""
        passage = await self.retriever.open_passage(self.actor, chunk_id, self.filters)
        if passage is None:
            raise ChunkNotFound(resource_type="chunk", resource_id=chunk_id[:100])
        return passage


async def _nearest(view: View, vector: Floats, limit: int) -> list[Ranked]:
    near = await view.nearest(vector, limit)
    numbers = view.columns(near.rows).number.tolist()
    return [
        Ranked(collection=view.collection, number=number, score=round(min(1.0, max(0.0, cosine)), 4), signals={})
        for number, cosine in zip(numbers, near.cosines.tolist(), strict=True)
    ]
