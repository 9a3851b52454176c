"""The operation `search.get_context`: the best passages for a query as one text."""

from __future__ import annotations

import time as timing
from typing import Annotated, Any, Literal

import msgspec

from weft.capabilities.assembly.packer import BuiltContext, build_context, build_surroundings
from weft.capabilities.assembly.passages import Section, heading_of
from weft.capabilities.knowledge.model import DomainNotFound
from weft.capabilities.records.model import ContextSourceRef
from weft.capabilities.search.model import DEFAULT_TOP_K
from weft.capabilities.search.passages import ref_to
from weft.capabilities.search.requests import ChunkId, QueryText, RankingOptions, requested_scope, search_request
from weft.capabilities.search.results import PassageSource, PendingItems, pending_items, source_fields
from weft.capabilities.search.retriever import Retriever
from weft.capabilities.search.similar import ChunkNotFound, SimilarSearch
from weft.capabilities.sessions.model import SessionNotFound
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Response, operation
from weft.kernel.tokens import TokenCounters

_DEFAULT_TOKENS = 2_000


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
        search = search_request(request, actor, request.query, DEFAULT_TOP_K, retriever)
        built = await build_context(retriever, actor, search, request.max_tokens, count)
    else:
        similar_search = SimilarSearch(retriever, actor, requested_scope(request))
        built = await build_surroundings(similar_search, request.chunk_id or "", request.max_tokens, count)
    return _context_response(request, built, started)


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
