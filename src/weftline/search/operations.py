"""Search operations: search by keywords and meaning, similar passages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import UNSET, structs

from weftline.indexing.embeddings import EmbedderUnavailable, TextRefused
from weftline.kernel.errors import InvalidInput, PermissionDenied, QuotaExceeded
from weftline.kernel.fields import Fraction
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, operation
from weftline.knowledge.model import DomainNotFound
from weftline.search.model import DEFAULT_TOP_K
from weftline.search.persistent_memory import SearchStores
from weftline.search.results import (
    SCORE_DIGITS,
    ExplainOption,
    PassageHandle,
    PassageInfo,
    PendingItems,
    QueryText,
    RankingOptions,
    ResolvedReference,
    ScopeFilters,
    SearchFacts,
    TopK,
    checked_text,
    passage_info,
    pending_items,
    requested_scope,
    resolved_references,
    search_facts,
    search_request,
)
from weftline.search.retriever import ChunkNotFound, RetrievalResult, Retriever, SimilarSearch
from weftline.search.search_records import (
    RecordOption,
    Searched,
    check_may_record,
    record_search,
    search_budget,
)
from weftline.sessions.model import SessionArchived, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.search.retriever import SearchHit

_OTHER_WORDS = "Perhaps not answered here: try other words"
_TOO_EARLY = "Not everything is searched yet, see pending: search again in a moment."
_UNSURE_HINT = f"{_OTHER_WORDS}, or low_confidence: true."


class SearchQuery(RankingOptions, kw_only=True):
    """Query and options of a search."""

    query: QueryText
    top_k: TopK = DEFAULT_TOP_K
    low_confidence: Annotated[
        bool, msgspec.Meta(description="Also return results below min_score, and top_k results of an unsure search.")
    ] = False
    explain: ExplainOption = False
    record: RecordOption = False


class SearchResponse(SearchFacts, kw_only=True):
    """Results, best first, at most top_k. ``confidence``: likelihood that they contain the answer, from 0 to 1.

    ``unsure``: it is low, so only the best few results are returned; ``hint`` says what to do. ``pinned``: items that
    come with every answer, whatever their score. ``resolved``: what phrases such as "that file" were taken to mean.
    ``lexical_only``: why only words were matched, not meaning.
    """

    results: list[PassageInfo]
    confidence: float
    unsure: bool = False
    hint: str = ""
    pinned: tuple[PassageInfo, ...] = ()
    resolved: tuple[ResolvedReference, ...] = ()
    lexical_only: str = ""
    min_score: float | msgspec.UnsetType = UNSET
    selection_id: str | msgspec.UnsetType = UNSET


class FindSimilar(ScopeFilters, kw_only=True):
    """A search result or a text to find similar passages for."""

    ref: PassageHandle | None = None
    text: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=32_000)] | None,
        msgspec.Meta(description="Alternatively, a text."),
    ] = None
    top_k: TopK = DEFAULT_TOP_K
    min_score: Annotated[Fraction, msgspec.Meta(description="Minimum score, which is a cosine similarity.")] = 0.0
    explain: ExplainOption = False


class SimilarResponse(SearchFacts, kw_only=True):
    """Nearest passages by meaning, nearest first, at most top_k.

    A score is the cosine similarity, 0 to 1, where 1 is the same meaning; not the calibrated relevance of a search.
    """

    results: list[PassageInfo]


@operation(
    "search.query",
    heavy=True,
    tool="search",
    http="POST /v1/search",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, SessionNotFound, SessionArchived, PermissionDenied, QuotaExceeded),
)
async def search_query(request: SearchQuery, actor: Actor, retriever: Retriever) -> SearchResponse:
    """Search everything you may see by keywords and meaning: documents, messages, boards, your memory and windows.

    Each result has a score and a ref, which context_records opens. If the answer may not be there, unsure is true and
    only the best few results are returned.
    """
    started = time.perf_counter()
    if request.record:
        check_may_record(actor)
    search = search_request(request, actor, request.query, request.top_k, retriever)
    query = structs.replace(search.query, low_confidence=request.low_confidence)
    found = await retriever.find(actor, search._replace(query=query))
    ranking, explain = found.ranking, request.explain
    return SearchResponse(
        results=_passages(found.hits, request),
        confidence=round(ranking.confidence, SCORE_DIGITS),
        unsure=ranking.unsure,
        hint=_hint(request, found) if ranking.unsure else "",
        pinned=tuple(_passages(found.pinned, request)),
        resolved=resolved_references(found.references),
        lexical_only=found.lexical_only,
        min_score=ranking.min_score if explain else UNSET,
        selection_id=await _record(request, actor, found, retriever),
        **search_facts(found.scope, ranking.searched, found.model, started, explain=explain),
    )


@operation(
    "search.find_similar",
    heavy=True,
    tool="find_similar",
    http="POST /v1/search/similar",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, SessionNotFound, ChunkNotFound, EmbedderUnavailable, TextRefused),
)
async def find_similar(request: FindSimilar, actor: Actor, retriever: Retriever) -> SimilarResponse:
    """Find passages similar in meaning to a search result or a text; the result itself is excluded."""
    started = time.perf_counter()
    if (request.text is None) == (request.ref is None):
        raise InvalidInput("text: give either ref or text", field="text")
    similar_search = SimilarSearch(retriever, actor, requested_scope(request))
    found = await similar_search.find(request.ref, checked_text("text", request.text), request.top_k, request.min_score)
    return SimilarResponse(
        results=_passages(found.hits, request),
        **search_facts(found.scope, found.searched, found.scope.model, started, explain=request.explain),
    )


def _passages(hits: Iterable[SearchHit], request: SearchQuery | FindSimilar) -> list[PassageInfo]:
    return [passage_info(hit, request.session_id, explain=request.explain) for hit in hits]


def _hint(request: SearchQuery, found: RetrievalResult) -> str:
    if pending_items(found.scope) != PendingItems():
        return _TOO_EARLY
    return f"{_OTHER_WORDS}." if request.low_confidence else _UNSURE_HINT


async def _record(
    request: SearchQuery, actor: Actor, found: RetrievalResult, retriever: Retriever
) -> str | msgspec.UnsetType:
    if not request.record:
        return UNSET

    async def record(stores: SearchStores) -> str:
        uris = tuple(dict.fromkeys(hit.passage.uri for hit in (*found.hits, *found.pinned)))
        budget = search_budget(stores, max_items=request.top_k, actual_items=len(uris))
        searched = Searched(request.query, found, uris, uris)
        selection = await record_search(stores, request.session_id, searched, budget)
        return selection.selection_id

    return await retriever.stores.write(actor, record)
