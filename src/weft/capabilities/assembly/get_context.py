"""The operation `search.get_context`: the best passages for a query as one text."""

from __future__ import annotations

import time as timing
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from weft.capabilities.assembly.packer import BuiltContext, build_context, build_surroundings
from weft.capabilities.assembly.passages import Section, heading_of
from weft.capabilities.knowledge.model import DomainNotFound
from weft.capabilities.records.model import Block, ContextAssembly, ContextSourceRef
from weft.capabilities.records.vocabulary import SCHEMA_VERSION
from weft.capabilities.search.model import DEFAULT_TOP_K
from weft.capabilities.search.passages import ref_to
from weft.capabilities.search.requests import ChunkId, QueryText, RankingOptions, requested_scope, search_request
from weft.capabilities.search.results import PassageSource, PendingItems, pending_items, source_fields
from weft.capabilities.search.retriever import Retriever
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
from weft.kernel.fields import new_id
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
    record: RecordOption = False


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

    ``complete``: every result fitted into the token budget. ``assembly_id``: the record of the text, if recorded. The
    other fields are those of a search.
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
    selection_id: str | msgspec.UnsetType = UNSET
    assembly_id: str | msgspec.UnsetType = UNSET


@operation(
    "search.get_context",
    tool="get_context",
    http="POST /v1/search/context",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, SessionNotFound, SessionArchived, ChunkNotFound, PermissionDenied),
)
async def get_context(
    request: GetContext, actor: Actor, retriever: Retriever, counters: TokenCounters
) -> ContextResponse:
    """Build one text for a prompt: the best passages for a question with their surroundings, within a token budget.

    Passages are numbered and have citations. With a chunk_id instead of a query: the surroundings of that chunk.
    """
    started = timing.perf_counter()
    if request.record:
        check_may_record(actor)
    count = counters.named(request.tokenizer)
    if (request.query is None) == (request.chunk_id is None):
        raise InvalidInput("query: give either query or chunk_id", field="query")
    if request.query is not None:
        search = search_request(request, actor, request.query, DEFAULT_TOP_K, retriever)
        built = await build_context(retriever, actor, search, request.max_tokens, count)
    else:
        similar_search = SimilarSearch(retriever, actor, requested_scope(request))
        built = await build_surroundings(similar_search, request.chunk_id or "", request.max_tokens, count)
    records = await retriever.stores.write(actor, partial(_record, request, built)) if request.record else None
    return _context_response(request, built, records, started)


class _Records(NamedTuple):
    """Ids of the records of a text."""

    selection_id: str
    assembly_id: str


async def _record(request: GetContext, built: BuiltContext, stores: SearchStores) -> _Records:
    """Record the search, its token budget and the text that was built."""
    rendered, hits = built.rendered, [] if built.found is None else built.found.hits
    sections = [tuple(dict.fromkeys(passage.uri for passage in each.passages)) for each in rendered.sections]
    selected = tuple(dict.fromkeys(uri for uris in sections for uri in uris))
    candidates = tuple(dict.fromkeys([*(hit.passage.uri for hit in hits), *selected]))
    budget = search_budget(
        stores, max_tokens=request.max_tokens, actual_tokens=rendered.tokens, actual_items=len(selected)
    )
    assembly = ContextAssembly(
        schema_version=SCHEMA_VERSION,
        assembly_id=new_id("assembly"),
        target=stores.actor.participant,
        ordered_blocks=tuple(
            Block(block_id=str(number), kind="retrieved", item_refs=uris) for number, uris in enumerate(sections, 1)
        ),
        created_at=stores.clock.now(),
        budget_ref=budget.budget_id,
        source_item_refs=selected,
        metadata={"weft": {"text_hash": f"sha256:{sha256(rendered.text.encode()).hexdigest()}"}},
    )
    searched = Searched(request.query, built.found, candidates, selected)
    selection = await record_search(stores, request.session_id, searched, budget, assembly)
    return _Records(selection.selection_id, assembly.assembly_id)


def _context_response(
    request: GetContext, built: BuiltContext, records: _Records | None, started: float
) -> ContextResponse:
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
        selection_id=UNSET if records is None else records.selection_id,
        assembly_id=UNSET if records is None else records.assembly_id,
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
