"""Search operations: search by keywords and meaning, context for prompts, similar passages."""

from __future__ import annotations

import time as timing
from datetime import time
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET

from weft.capabilities.indexing.collections.model import SOURCES, Source
from weft.capabilities.indexing.embeddings.model import EmbedderUnavailable, TextRefused
from weft.capabilities.knowledge.documents import MetadataValue
from weft.capabilities.knowledge.model import DomainName, DomainNotFound
from weft.capabilities.messages.search.by_sender_and_time import TimestampText, parse_timestamp
from weft.capabilities.messages.search.selection_records import record_selection
from weft.capabilities.records.model import ContextSourceRef
from weft.capabilities.search.context_builder import BuiltContext, build_context
from weft.capabilities.search.context_renderer import Section, heading_of
from weft.capabilities.search.model import (
    DEFAULT_HALF_LIFE_DAYS,
    DEFAULT_IMPORTANCE_WEIGHT,
    DEFAULT_MIN_SCORE,
    DEFAULT_RECENCY_WEIGHT,
    DEFAULT_TOP_K,
    Query,
    RankingWeights,
)
from weft.capabilities.search.passages import ref_to
from weft.capabilities.search.results import (
    PassageInfo,
    PassageSource,
    PendingItems,
    passage_info,
    pending_items,
    source_fields,
)
from weft.capabilities.search.retriever import RetrievalResult, Retriever, SearchRequest
from weft.capabilities.search.scope import RequestedScope
from weft.capabilities.search.similar import ChunkNotFound, SimilarSearch
from weft.capabilities.search.stores import SearchStores
from weft.capabilities.sessions.model import SessionArchived, SessionId, SessionNotFound, lock_active_session
from weft.kernel.clock import to_micros
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.fields import Fraction
from weft.kernel.identity import PRINCIPAL, Actor, Permission
from weft.kernel.json_input import encode_json_field
from weft.kernel.operation import Effect, RateClass, Request, Response, operation
from weft.kernel.tokens import TokenCounters

_MAX_CHARACTERS = 2_000
_DEFAULT_TOKENS = 2_000
QueryText = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=_MAX_CHARACTERS, description="A question or keywords."),
]
ChunkId = Annotated[
    str,
    msgspec.Meta(
        min_length=3,
        max_length=300,
        pattern=r"^[A-Za-z0-9_:-]+/[0-9]+\Z",
        description="The chunk_id of a search result, such as domain:handbook/42.",
    ),
]
TopK = Annotated[
    int,
    msgspec.Meta(ge=1, le=100, description="Maximum results; may be exceeded at low confidence and by pinned items."),
]
MediaType = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[ -~]+\Z")]
DomainField = Annotated[DomainName | None, msgspec.Meta(description="Only this knowledge domain.")]


class ScopeFilters(Request):
    """Filters of the search scope; without filters everything you may see is searched."""

    domain: DomainField = None
    domains: Annotated[
        Annotated[list[DomainName], msgspec.Meta(min_length=1, max_length=100)] | None,
        msgspec.Meta(description="Only these knowledge domains."),
    ] = None
    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Only this session; documents are still searched.")
    ] = None
    sources: Annotated[
        Annotated[list[Source], msgspec.Meta(min_length=1, max_length=len(SOURCES))] | None,
        msgspec.Meta(description="Only these kinds of sources."),
    ] = None
    since: Annotated[
        TimestampText | None,
        msgspec.Meta(description="Only items from this time on: 2025-01-15 or 2025-01-15T10:00:00Z."),
    ] = None
    until: Annotated[
        TimestampText | None,
        msgspec.Meta(description="Only items up to this time; a date such as 2025-01-15 includes that day."),
    ] = None
    metadata: Annotated[
        Annotated[dict[str, MetadataValue], msgspec.Meta(max_length=20)] | None,
        msgspec.Meta(description="Only documents whose metadata contain all of these values."),
    ] = None
    types: Annotated[
        Annotated[list[MediaType], msgspec.Meta(min_length=1, max_length=20)] | None,
        msgspec.Meta(description="Only documents of these media types, such as text/markdown."),
    ] = None


class RankingOptions(ScopeFilters, kw_only=True):
    """Weights of the ranking, and the minimum score of a result."""

    min_score: Annotated[
        Fraction | None,
        msgspec.Meta(
            description="Minimum relevance of a result, lower at low confidence; default: the agent's, or 0.7."
        ),
    ] = None
    recency_weight: Annotated[Fraction, msgspec.Meta(description="Weight of recency in the ranking.")] = (
        DEFAULT_RECENCY_WEIGHT
    )
    half_life_days: Annotated[float, msgspec.Meta(gt=0, le=36_500, description="Days after which recency halves.")] = (
        DEFAULT_HALF_LIFE_DAYS
    )
    importance_weight: Annotated[Fraction, msgspec.Meta(description="Weight of importance in the ranking.")] = (
        DEFAULT_IMPORTANCE_WEIGHT
    )


class SearchQuery(RankingOptions, kw_only=True):
    """Query and options of a search."""

    query: QueryText
    top_k: TopK = DEFAULT_TOP_K
    explain: Annotated[bool, msgspec.Meta(description="Return the signals that make up each score.")] = True
    record: Annotated[
        bool, msgspec.Meta(description="Also record the results as a selection, in session_id if given.")
    ] = False


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


class GetContext(RankingOptions, kw_only=True):
    """A query or a search result to build context for."""

    query: QueryText | None = None
    chunk_id: Annotated[
        ChunkId | None, msgspec.Meta(description="Alternatively, a search result: returns its surroundings.")
    ] = None
    max_tokens: Annotated[int, msgspec.Meta(ge=16, le=200_000, description="Token budget of the text.")] = (
        _DEFAULT_TOKENS
    )
    tokenizer: Annotated[
        Literal["approximate", "o200k_base", "cl100k_base"],
        msgspec.Meta(description="How tokens are counted; exact tokenizers need the weft[tokenizers] extra."),
    ] = "approximate"


class Citation(PassageSource, kw_only=True):
    """Source of a numbered passage. ``chunk_ids``: the search results it contains."""

    number: int
    label: str
    chunk_ids: list[str]
    message_ids: tuple[int, ...] = ()
    score: float | None = None
    refs: list[ContextSourceRef]


class ContextResponse(Response, kw_only=True, omit_defaults=False):
    """Passages numbered [1], [2] and so on, most relevant first, each with its surroundings.

    ``complete``: every result fitted into the token budget. The other fields are those of a search.
    """

    success: Literal[True] = True
    context: str
    tokens: int
    max_tokens: int
    citations: list[Citation]
    complete: bool
    confidence: float | None
    widened: bool
    fallback: Literal["recency"] | None
    searched: int
    pending: PendingItems
    model: str | None
    took_ms: float


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
    """Search everything you may see by keywords and meaning: documents, messages, boards and your memory.

    Each result has a score, its signals and a ref to the exact passage. If nothing is relevant, the most recent items
    are returned and fallback is set.
    """
    started = timing.perf_counter()
    _check_record(request, actor)
    found = await retriever.find(actor, _search_request(request, actor, request.query, request.top_k, retriever))
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
    "search.get_context",
    tool="get_context",
    http="POST /v1/search/context",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, SessionNotFound, ChunkNotFound),
)
async def get_context(
    request: GetContext, actor: Actor, retriever: Retriever, counters: TokenCounters
) -> ContextResponse:
    """Build one text for a prompt: the best passages for a question with their surroundings, within a token budget.

    Passages are numbered and have citations. With a chunk_id instead of a query: the surroundings of that chunk.
    """
    started = timing.perf_counter()
    count = counters.named(request.tokenizer)
    if (request.query is None) == (request.chunk_id is None):
        raise InvalidInput("query: give either query or chunk_id", field="query")
    if request.query is not None:
        search = _search_request(request, actor, request.query, DEFAULT_TOP_K, retriever)
        built = await build_context(retriever, actor, search, request.max_tokens, count)
    else:
        similar_search = SimilarSearch(retriever, actor, _requested_scope(request))
        built = await similar_search.surroundings(request.chunk_id or "", request.max_tokens, count)
    return _context_response(request, built, started)


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
    similar_search = SimilarSearch(retriever, actor, _requested_scope(request))
    found = await similar_search.find(
        request.chunk_id, _checked_text("text", request.text), request.top_k, request.min_score
    )
    return SimilarResponse(
        results=[passage_info(hit, explain=False) for hit in found.hits],
        searched=found.searched,
        pending=pending_items(found.scope),
        model=found.scope.model,
        took_ms=_milliseconds(started),
    )


def _search_request(
    request: RankingOptions, actor: Actor, query: str, top_k: int, retriever: Retriever
) -> SearchRequest:
    weights = RankingWeights(
        min_score=_min_score(request, actor),
        recency_weight=request.recency_weight,
        importance_weight=request.importance_weight,
        half_life_days=request.half_life_days,
    )
    text = _checked_text("query", query) or ""
    return SearchRequest(
        Query(text=text, asked_at=retriever.now(), top_k=top_k, weights=weights), _requested_scope(request)
    )


def _min_score(request: RankingOptions, actor: Actor) -> float:
    candidates = (request.min_score, actor.min_score, DEFAULT_MIN_SCORE)
    return next(min_score for min_score in candidates if min_score is not None)


def _checked_text(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    encode_json_field(name, text)
    if not text.strip():
        raise InvalidInput(f"{name}: is empty", field=name)
    return text


def _requested_scope(request: ScopeFilters) -> RequestedScope:
    if request.domain is not None and request.domains is not None:
        raise InvalidInput("domains: give either domain or domains", field="domains")
    domains = [request.domain] if request.domain is not None else request.domains or []
    since = None if request.since is None else to_micros(parse_timestamp("since", request.since, of_day=time.min))
    # Inclusive.
    until = None if request.until is None else to_micros(parse_timestamp("until", request.until, of_day=time.max)) + 1
    if since is not None and until is not None and since >= until:
        raise InvalidInput("since: later than until", field="since")
    if request.metadata:
        encode_json_field("metadata", request.metadata)
    return RequestedScope(
        domains=tuple(domains),
        session_id=request.session_id,
        sources=None if request.sources is None else frozenset(request.sources),
        metadata=request.metadata or {},
        types=tuple(request.types or ()),
        since=since,
        until=until,
    )


def _check_record(request: SearchQuery, actor: Actor) -> None:
    if request.record and Permission.WRITE not in actor.permissions:
        raise PermissionDenied("Recording a search needs the permission 'write'.")


async def _record(
    request: SearchQuery, actor: Actor, found: RetrievalResult, retriever: Retriever
) -> str | msgspec.UnsetType:
    if not request.record:
        return UNSET

    async def record(stores: SearchStores) -> str:
        session = None
        if request.session_id is not None:
            session, _ = await lock_active_session(request.session_id, actor, stores.sessions)
        uris = tuple(dict.fromkeys(hit.passage.uri for hit in found.hits))
        selection = await record_selection(
            stores.recorder,
            session,
            # Other participants may not be allowed to read what the caller found.
            readable_by=(f"{PRINCIPAL}{actor.principal_id}",),
            query=request.query,
            candidate_item_refs=uris,
            selected_item_refs=uris,
            ranking_signals={
                "score": {hit.passage.uri: hit.ranked.score for hit in reversed(found.hits)},
                "confidence": found.ranking.confidence,
            },
            selection_policy={"min_score": found.ranking.min_score, "widened": found.ranking.widened},
            rationale=f"Best of {found.ranking.searched} chunks.",
        )
        return selection.selection_id

    return await retriever.stores.write(actor, record)


def _context_response(request: GetContext, built: BuiltContext, started: float) -> ContextResponse:
    rendered, found = built.rendered, built.found
    ranking = None if found is None else found.ranking
    return ContextResponse(
        context=rendered.text,
        tokens=rendered.tokens,
        max_tokens=request.max_tokens,
        citations=[_citation(number, each, built) for number, each in enumerate(rendered.sections, start=1)],
        complete=rendered.complete,
        confidence=None if ranking is None else ranking.confidence,
        widened=ranking is not None and ranking.widened,
        fallback=None if ranking is None else ranking.fallback,
        searched=0 if ranking is None else ranking.searched,
        pending=pending_items(built.scope),
        model=None if found is None else found.model,
        took_ms=_milliseconds(started),
    )


def _citation(number: int, section: Section, built: BuiltContext) -> Citation:
    scores = [built.scores[each.chunk_id] for each in section.passages if each.chunk_id in built.scores]
    fields: dict[str, Any] = source_fields(section.passages[0])
    return Citation(
        number=number,
        label=heading_of(section),
        chunk_ids=[each.chunk_id for each in section.passages if each.chunk_id in built.scores],
        message_ids=tuple(dict.fromkeys(each.message_id for each in section.passages if each.message_id is not None)),
        score=max(scores, default=None),
        refs=[ref_to(each) for each in section.passages],
        **fields,
    )


def _milliseconds(started: float) -> float:
    return round((timing.perf_counter() - started) * 1000, 3)
