"""Search operations: search by keywords and meaning, similar passages."""

from __future__ import annotations

import time as timing
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET

from weft.capabilities.indexing.embeddings.model import EmbedderUnavailable, TextRefused
from weft.capabilities.knowledge.model import DomainNotFound
from weft.capabilities.search.model import DEFAULT_TOP_K
from weft.capabilities.search.requests import (
    ChunkId,
    QueryText,
    RankingOptions,
    ScopeFilters,
    TopK,
    checked_text,
    requested_scope,
    search_request,
)
from weft.capabilities.search.results import PassageInfo, PendingItems, passage_info, pending_items
from weft.capabilities.search.retriever import RetrievalResult, Retriever
from weft.capabilities.search.search_records import (
    RecordOption,
    Searched,
    check_may_record,
    record_search,
    search_budget,
)
from weft.capabilities.search.similar import ChunkNotFound, SimilarSearch
from weft.capabilities.search.stores import SearchStores
from weft.capabilities.sessions.model import SessionArchived, SessionNotFound
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.fields import Fraction
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Response, operation


class SearchQuery(RankingOptions, kw_only=True):
    """Query and options of a search."""

    query: QueryText
    top_k: TopK = DEFAULT_TOP_K
    explain: Annotated[bool, msgspec.Meta(description="Return the signals that make up each score.")] = True
    record: RecordOption = False


class SearchResponse(Response, kw_only=True, omit_defaults=False):
    """Results, best first. ``confidence``: likelihood that they contain the answer, from 0 to 1.

    ``widened``: confidence was low, so more results were returned, from a lower ``min_score``. ``fallback``: nothing
    was relevant, so the most recent were returned. ``searched``: number of chunks in scope. ``pending``: items not
    indexed yet. ``model``: embedding model; null if it was unavailable and only keywords were matched.
    """

    success: Literal[True] = True
    results: list[PassageInfo]
    confidence: float
    widened: bool
    fallback: Literal["recency"] | None
    min_score: float
    searched: int
    pending: PendingItems
    model: str | None
    took_ms: float
    selection_id: str | msgspec.UnsetType = UNSET


class FindSimilar(ScopeFilters, kw_only=True):
    """A search result or a text to find similar passages for."""

    chunk_id: ChunkId | None = None
    text: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=32_000)] | None,
        msgspec.Meta(description="Alternatively, a text."),
    ] = None
    top_k: TopK = DEFAULT_TOP_K
    min_score: Annotated[Fraction, msgspec.Meta(description="Minimum cosine similarity.")] = 0.0


class SimilarResponse(Response, kw_only=True, omit_defaults=False):
    """Nearest passages by meaning, nearest first; scores are cosine similarities."""

    success: Literal[True] = True
    results: list[PassageInfo]
    searched: int
    pending: PendingItems
    model: str
    took_ms: float


@operation(
    "search.query",
    tool="search",
    http="POST /v1/search",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, SessionNotFound, SessionArchived, PermissionDenied),
)
async def search_query(request: SearchQuery, actor: Actor, retriever: Retriever) -> SearchResponse:
    """Search everything you may see by keywords and meaning: documents, messages, boards, your memory and windows.

    Each result has a score, its signals and a ref to the exact passage. If nothing is relevant, the most recent items
    are returned and fallback is set.
    """
    started = timing.perf_counter()
    if request.record:
        check_may_record(actor)
    found = await retriever.find(actor, search_request(request, actor, request.query, request.top_k, retriever))
    return SearchResponse(
        results=[passage_info(hit, explain=request.explain) for hit in found.hits],
        confidence=found.ranking.confidence,
        widened=found.ranking.widened,
        fallback=found.ranking.fallback,
        min_score=found.ranking.min_score,
        searched=found.ranking.searched,
        pending=pending_items(found.scope),
        model=found.model,
        selection_id=await _record(request, actor, found, retriever),
        took_ms=_milliseconds(started),
    )


@operation(
    "search.find_similar",
    tool="find_similar",
    http="POST /v1/search/similar",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, SessionNotFound, ChunkNotFound, EmbedderUnavailable, TextRefused),
)
async def find_similar(request: FindSimilar, actor: Actor, retriever: Retriever) -> SimilarResponse:
    """Find passages similar in meaning to a search result or a text; the result itself is excluded."""
    started = timing.perf_counter()
    if (request.text is None) == (request.chunk_id is None):
        raise InvalidInput("text: give either chunk_id or text", field="text")
    similar_search = SimilarSearch(retriever, actor, requested_scope(request))
    found = await similar_search.find(
        request.chunk_id, checked_text("text", request.text), request.top_k, request.min_score
    )
    return SimilarResponse(
        results=[passage_info(hit, explain=False) for hit in found.hits],
        searched=found.searched,
        pending=pending_items(found.scope),
        model=found.scope.model,
        took_ms=_milliseconds(started),
    )


async def _record(
    request: SearchQuery, actor: Actor, found: RetrievalResult, retriever: Retriever
) -> str | msgspec.UnsetType:
    if not request.record:
        return UNSET

    async def record(stores: SearchStores) -> str:
        uris = tuple(dict.fromkeys(hit.passage.uri for hit in found.hits))
        budget = search_budget(stores, max_items=request.top_k, actual_items=len(uris))
        searched = Searched(request.query, found, uris, uris)
        selection = await record_search(stores, request.session_id, searched, budget)
        return selection.selection_id

    return await retriever.stores.write(actor, record)


def _milliseconds(started: float) -> float:
    return round((timing.perf_counter() - started) * 1000, 3)
