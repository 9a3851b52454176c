"""Finding what matters: by words and by meaning, in everything the caller may see."""

from __future__ import annotations

import time as timing
from datetime import time
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET

from weft.capabilities.indexing.collections.model import Source
from weft.capabilities.indexing.embeddings.model import EmbedderUnavailable, TextRefused
from weft.capabilities.knowledge.documents import Value
from weft.capabilities.knowledge.model import DomainName, DomainNotFound
from weft.capabilities.messages.search.by_sender_and_time import Moment, moment_meant
from weft.capabilities.records.model import ContextSourceRef
from weft.capabilities.search.context_builder import BuiltContext, gather
from weft.capabilities.search.context_renderer import Section, heading_of
from weft.capabilities.search.model import (
    DEFAULT_FLOOR,
    DEFAULT_HALF_LIFE_DAYS,
    DEFAULT_IMPORTANCE_WEIGHT,
    DEFAULT_RECENCY_WEIGHT,
    DEFAULT_TOP_K,
    Query,
    RankingWeights,
)
from weft.capabilities.search.passages import ref_to
from weft.capabilities.search.results import FoundIn, FoundPassage, PendingItems, passage_shown, pending_in, where
from weft.capabilities.search.retriever import Retriever, SearchRequest, SearchResult
from weft.capabilities.search.scope import RequestedScope
from weft.capabilities.search.search_records import record_search
from weft.capabilities.search.similar import ChunkNotFound, SimilarSearch
from weft.capabilities.sessions.model import SessionArchived, SessionId, SessionNotFound
from weft.kernel.clock import to_micros
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.fields import Fraction
from weft.kernel.identity import Actor, Permission
from weft.kernel.json_input import encode_given
from weft.kernel.operation import Effect, RateClass, Request, Response, operation
from weft.kernel.tokens import TokenCounters

_MOST_CHARACTERS = 2_000
_DEFAULT_TOKENS = 2_000
QueryText = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=_MOST_CHARACTERS, description="A question, or words that should be there."),
]
ChunkId = Annotated[
    str,
    msgspec.Meta(
        min_length=3,
        max_length=300,
        pattern=r"^[A-Za-z0-9_:-]+/[0-9]+\Z",
        description="The chunk_id of something found, such as domain:handbook/42.",
    ),
]
TopK = Annotated[
    int,
    msgspec.Meta(ge=1, le=100, description="So many results; more come if it is not sure that these answer, and pins."),
]
MediaType = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[ -~]+\Z")]
DomainField = Annotated[DomainName | None, msgspec.Meta(description="Only this domain of knowledge.")]


class Filtered(Request):
    """Which part of everything you may see is looked at; all of it if nothing is said."""

    domain: DomainField = None
    domains: Annotated[
        Annotated[list[DomainName], msgspec.Meta(min_length=1, max_length=100)] | None,
        msgspec.Meta(description="Only these domains."),
    ] = None
    session_id: Annotated[SessionId | None, msgspec.Meta(description="Of sessions only this one; documents stay.")] = (
        None
    )
    sources: Annotated[
        Annotated[list[Source], msgspec.Meta(min_length=1, max_length=4)] | None,
        msgspec.Meta(description="Only documents, messages, boards or your memory."),
    ] = None
    since: Annotated[
        Moment | None,
        msgspec.Meta(description="Only what was said or written from then on: 2025-01-15 or 2025-01-15T10:00:00Z."),
    ] = None
    until: Annotated[
        Moment | None,
        msgspec.Meta(description="Only what was said or written until then: 2025-01-15 is that whole day."),
    ] = None
    metadata: Annotated[
        Annotated[dict[str, Value], msgspec.Meta(max_length=20)] | None,
        msgspec.Meta(description="Only documents whose metadata say all of this."),
    ] = None
    types: Annotated[
        Annotated[list[MediaType], msgspec.Meta(min_length=1, max_length=20)] | None,
        msgspec.Meta(description="Only documents of these media types: text/markdown."),
    ] = None


class WeightOptions(Filtered, kw_only=True):
    """What counts beside relevance, and from which relevance on something is a result."""

    floor: Annotated[
        Fraction | None,
        msgspec.Meta(
            description="What is less relevant is left out, unless too little would be left: 0.7, or what an admin set "
            "for you."
        ),
    ] = None
    recency_weight: Annotated[Fraction, msgspec.Meta(description="How much it counts that something is new.")] = (
        DEFAULT_RECENCY_WEIGHT
    )
    half_life_days: Annotated[
        float, msgspec.Meta(gt=0, le=36_500, description="After so many days something counts as half as new.")
    ] = DEFAULT_HALF_LIFE_DAYS
    importance_weight: Annotated[
        Fraction, msgspec.Meta(description="How much it counts that something is important.")
    ] = DEFAULT_IMPORTANCE_WEIGHT


class SearchEverything(WeightOptions, kw_only=True):
    """What to look for."""

    query: QueryText
    top_k: TopK = DEFAULT_TOP_K
    explain: Annotated[bool, msgspec.Meta(description="Say of each result what its score is made of.")] = True
    record: Annotated[
        bool, msgspec.Meta(description="Also put on record what was found, as a selection: in session_id if given.")
    ] = False


class EverythingFound(Response, kw_only=True, omit_defaults=False):
    """The best first. ``confidence`` is how sure it is that they answer, from 0 to 1.

    ``widened``: it was not, so more came, from a lower ``floor``. ``fallback``: nothing was relevant, so the most
    recent came instead. ``searched`` chunks were looked at: all that you may see of what you asked for; ``pending`` is
    what cannot be found yet. ``model`` is what meaning was compared by; null if words alone had to do.
    """

    success: Literal[True] = True
    results: list[FoundPassage]
    confidence: float
    widened: bool
    fallback: Literal["recency"] | None
    floor: float
    searched: int
    pending: PendingItems
    model: str | None
    took_ms: float
    selection_id: str | msgspec.UnsetType = UNSET


class GetContext(WeightOptions, kw_only=True):
    """What to gather context for: a question, or something that was found."""

    query: QueryText | None = None
    chunk_id: Annotated[ChunkId | None, msgspec.Meta(description="Or: what stands around this.")] = None
    max_tokens: Annotated[
        int, msgspec.Meta(ge=16, le=200_000, description="The text has at most this many tokens.")
    ] = _DEFAULT_TOKENS
    tokenizer: Annotated[
        Literal["approximate", "o200k_base", "cl100k_base"],
        msgspec.Meta(description="How tokens are counted; the exact ones need the weft[tokenizers] extra."),
    ] = "approximate"


class Citation(FoundIn, kw_only=True):
    """Where the passage of that number is from. ``chunk_ids`` are what was found in it."""

    number: int
    label: str
    chunk_ids: list[str]
    message_ids: tuple[int, ...] = ()
    score: float | None = None
    refs: list[ContextSourceRef]


class ContextGathered(Response, kw_only=True, omit_defaults=False):
    """A text to read: passages numbered [1], [2] and so on, the most relevant first, each with what stands around it.

    ``complete`` tells that nothing of what was found had to be left out; the rest is as search tells it.
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


class FindSimilar(Filtered, kw_only=True):
    """What to find the like of: something that was found, or a text."""

    chunk_id: ChunkId | None = None
    text: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=32_000)] | None,
        msgspec.Meta(description="Or a text of your own."),
    ] = None
    top_k: TopK = DEFAULT_TOP_K
    floor: Annotated[Fraction, msgspec.Meta(description="What is less alike is left out.")] = 0.0


class SimilarFound(Response, kw_only=True, omit_defaults=False):
    """What is nearest by meaning, the nearest first; scores are cosines."""

    success: Literal[True] = True
    results: list[FoundPassage]
    searched: int
    pending: PendingItems
    model: str
    took_ms: float


@operation(
    "search.everything",
    tool="search",
    http="POST /v1/search",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, SessionNotFound, SessionArchived, PermissionDenied),
)
async def search_everything(request: SearchEverything, actor: Actor, retriever: Retriever) -> EverythingFound:
    """Search everything you may see, by words and by meaning: documents, messages, boards and your memory.

    Ask in your own words. Results come with their score, why they have it, and a ref to the exact passage. If nothing
    is relevant, the most recent comes instead and fallback says so.
    """
    started = timing.perf_counter()
    _check_record(request, actor)
    found = await retriever.find(actor, _asked(request, actor, request.query, request.top_k, retriever))
    return EverythingFound(
        results=[passage_shown(hit, explain=request.explain) for hit in found.hits],
        confidence=found.ranking.confidence,
        widened=found.ranking.widened,
        fallback=found.ranking.fallback,
        floor=found.ranking.floor,
        searched=found.ranking.searched,
        pending=pending_in(found.outlook),
        model=found.model,
        selection_id=await _recorded(request, actor, found, retriever),
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
) -> ContextGathered:
    """Gather what matters for a question into one text that fits: the best passages with what stands around them.

    Each passage is numbered, and citations say where it is from. With a chunk_id instead of a query, it is what stands
    around that chunk.
    """
    started = timing.perf_counter()
    count = counters.named(request.tokenizer)
    if (request.query is None) == (request.chunk_id is None):
        raise InvalidInput("query: give either query or chunk_id", field="query")
    if request.query is not None:
        asked = _asked(request, actor, request.query, DEFAULT_TOP_K, retriever)
        gathered = await gather(retriever, actor, asked, request.max_tokens, count)
    else:
        likeness = SimilarSearch(retriever, actor, _part(request))
        gathered = await likeness.surroundings(request.chunk_id or "", request.max_tokens, count)
    return _gathered(request, gathered, started)


@operation(
    "search.find_similar",
    tool="find_similar",
    http="POST /v1/search/similar",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, SessionNotFound, ChunkNotFound, EmbedderUnavailable, TextRefused),
)
async def find_similar(request: FindSimilar, actor: Actor, retriever: Retriever) -> SimilarFound:
    """Find what means nearly the same as something that was found, or as a text of yours; itself left out."""
    started = timing.perf_counter()
    if (request.text is None) == (request.chunk_id is None):
        raise InvalidInput("text: give either chunk_id or text", field="text")
    likeness = SimilarSearch(retriever, actor, _part(request))
    similar = await likeness.find(request.chunk_id, _said("text", request.text), request.top_k, request.floor)
    return SimilarFound(
        results=[passage_shown(hit, explain=False) for hit in similar.hits],
        searched=similar.searched,
        pending=pending_in(similar.outlook),
        model=similar.outlook.model,
        took_ms=_milliseconds(started),
    )


def _asked(request: WeightOptions, actor: Actor, query: str, top_k: int, retriever: Retriever) -> SearchRequest:
    weighing = RankingWeights(
        floor=_floor(request, actor),
        recency_weight=request.recency_weight,
        importance_weight=request.importance_weight,
        half_life_days=request.half_life_days,
    )
    text = _said("query", query) or ""
    return SearchRequest(Query(text=text, asked_at=retriever.now(), top_k=top_k, weighing=weighing), _part(request))


def _floor(request: WeightOptions, actor: Actor) -> float:
    floors = (request.floor, actor.relevance_floor, DEFAULT_FLOOR)
    return next(floor for floor in floors if floor is not None)


def _said(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    encode_given(name, text)
    if not text.strip():
        raise InvalidInput(f"{name}: nothing to look for", field=name)
    return text


def _part(request: Filtered) -> RequestedScope:
    if request.domain is not None and request.domains is not None:
        raise InvalidInput("domains: give either domain or domains", field="domains")
    named = [request.domain] if request.domain is not None else request.domains or []
    since = None if request.since is None else to_micros(moment_meant("since", request.since, of_day=time.min))
    # What was said at that very moment is in.
    until = None if request.until is None else to_micros(moment_meant("until", request.until, of_day=time.max)) + 1
    if since is not None and until is not None and since >= until:
        raise InvalidInput("since: later than until", field="since")
    if request.metadata:
        encode_given("metadata", request.metadata)
    return RequestedScope(
        domains=tuple(named),
        session_id=request.session_id,
        sources=None if request.sources is None else frozenset(request.sources),
        metadata=request.metadata or {},
        types=tuple(request.types or ()),
        since=since,
        until=until,
    )


def _check_record(request: SearchEverything, actor: Actor) -> None:
    if request.record and Permission.WRITE not in actor.permissions:
        raise PermissionDenied("Putting a search on record needs the permission 'write'.")


async def _recorded(
    request: SearchEverything, actor: Actor, found: SearchResult, retriever: Retriever
) -> str | msgspec.UnsetType:
    if not request.record:
        return UNSET
    return await record_search(retriever, actor, request.query, request.session_id, found)


def _gathered(request: GetContext, gathered: BuiltContext, started: float) -> ContextGathered:
    woven, found = gathered.woven, gathered.found
    ranking = None if found is None else found.ranking
    return ContextGathered(
        context=woven.text,
        tokens=woven.tokens,
        max_tokens=request.max_tokens,
        citations=[_citation(number, each, gathered) for number, each in enumerate(woven.stretches, start=1)],
        complete=woven.complete,
        confidence=None if ranking is None else ranking.confidence,
        widened=ranking is not None and ranking.widened,
        fallback=None if ranking is None else ranking.fallback,
        searched=0 if ranking is None else ranking.searched,
        pending=pending_in(gathered.outlook),
        model=None if found is None else found.model,
        took_ms=_milliseconds(started),
    )


def _citation(number: int, stretch: Section, gathered: BuiltContext) -> Citation:
    scores = [gathered.scores[each.chunk_id] for each in stretch.passages if each.chunk_id in gathered.scores]
    said: dict[str, Any] = where(stretch.passages[0])
    return Citation(
        number=number,
        label=heading_of(stretch),
        chunk_ids=[each.chunk_id for each in stretch.passages if each.chunk_id in gathered.scores],
        message_ids=tuple(dict.fromkeys(each.message_id for each in stretch.passages if each.message_id is not None)),
        score=max(scores, default=None),
        refs=[ref_to(each) for each in stretch.passages],
        **said,
    )


def _milliseconds(started: float) -> float:
    return round((timing.perf_counter() - started) * 1000, 3)
