"""Search results as returned to callers."""

from __future__ import annotations

from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType, structs

from weftline.indexing.collections import SOURCES, Source
from weftline.indexing.entities import MAX_VALUE_LENGTH, unpack_entities
from weftline.kernel.clock import TimestampText, from_micros, parse_range
from weftline.kernel.errors import InvalidInput
from weftline.kernel.fields import Fraction, ShortText
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Request, Response
from weftline.knowledge.documents import MetadataValue
from weftline.knowledge.model import DomainName
from weftline.records.model import ContextSourceRef
from weftline.safety.trust.model import Trust
from weftline.search.model import (
    DEFAULT_HALF_LIFE_DAYS,
    DEFAULT_IMPORTANCE_WEIGHT,
    DEFAULT_MIN_SCORE,
    DEFAULT_RECENCY_WEIGHT,
    Query,
    RankingWeights,
)
from weftline.search.passages import ref_to
from weftline.search.retriever import SearchRequest
from weftline.search.scope import RequestedScope
from weftline.sessions.model import SessionId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.kernel.identity import Actor
    from weftline.search.passages import ChunkPassage
    from weftline.search.references import Reference
    from weftline.search.retriever import Retriever, SearchHit, SearchScope


# More digits would cost tokens and mean nothing.
SCORE_DIGITS = 3
# Kinds of sources that always belong to a session.
_OF_SESSIONS = frozenset({"message", "board", "event"})


class PassageSource(Response, kw_only=True):
    """Source of a passage: a document, a message or board key of a session, a key of memory, or a window event.

    ``memory_type``: an entry of persistent memory; ``owner`` is its team or user, unless it is your own.
    """

    source: Source
    domain: str | None = None
    document_id: str | None = None
    session_id: str | None = None
    message_id: int | None = None
    agent_id: str | None = None
    event_id: str | None = None
    key: str | None = None
    memory_type: str | None = None
    workflow_id: str | None = None
    owner: str | None = None
    title: str = ""
    heading: str = ""
    speaker: str = ""
    timestamp: datetime


class PassageInfo(PassageSource, kw_only=True):
    """A search result. ``score`` is from 0 to 1; ``ref`` is a handle that context_records, show or resolve, opens.

    Results of the session that the search names have no ``session_id``. ``trust`` is shown where it is not the usual
    one of the source: a suspicious text may contain an attack.
    With ``explain``: ``signals`` make up the score, ``entities`` are mentioned, such as file:src/app.py, ``source_ref``
    is the full reference to the exact passage.
    """

    ref: str
    score: float
    text: str
    trust: Trust | UnsetType = UNSET
    signals: dict[str, float] | UnsetType = UNSET
    entities: tuple[str, ...] = ()
    source_ref: ContextSourceRef | UnsetType = UNSET


class ResolvedReference(Response, kw_only=True):
    """A phrase of the query, what it was taken to mean, and the item that says so."""

    phrase: str
    entity: str
    source: str


class PendingItems(Response):
    """Items in scope that are not indexed yet: documents, and events of sessions, memories and windows.

    ``by_words``: something that you wrote is found by its words only so far, not yet by its meaning. ``partial``: an
    index is being rebuilt, so not everything was searched and confidence is lower.
    """

    documents: int = 0
    events: int = 0
    by_words: bool = False
    partial: bool = False


class SearchFacts(Response, kw_only=True):
    """What a search covered. ``pending`` is set if items are not indexed yet, the others with ``explain``.

    ``searched``: number of chunks in scope. ``model``: embedding model; not set if only keywords were matched.
    """

    pending: PendingItems | None = None
    searched: int | UnsetType = UNSET
    model: str | UnsetType = UNSET
    took_ms: float | UnsetType = UNSET


def passage_info(hit: SearchHit, session_id: str | None, *, explain: bool) -> PassageInfo:
    """Return a result of a search in a session, if one was named."""
    source = source_fields(hit.passage)
    if not explain and hit.passage.chunk.source in _OF_SESSIONS and source["session_id"] == session_id:
        # The caller named it.
        source["session_id"] = None
    return PassageInfo(
        ref=hit.passage.handle,
        score=round(hit.ranked.score, SCORE_DIGITS),
        text=hit.passage.text,
        trust=hit.passage.trust or UNSET,
        signals=hit.ranked.signals if explain else UNSET,
        entities=tuple(map(str, unpack_entities(hit.passage.chunk.entities))) if explain else (),
        source_ref=ref_to(hit.passage) if explain else UNSET,
        **source,
    )


def resolved_references(references: Iterable[Reference]) -> tuple[ResolvedReference, ...]:
    return tuple(
        ResolvedReference(phrase=each.phrase, entity=f"{each.kind}:{each.value}", source=each.source)
        for each in references
    )


def search_facts(
    scope: SearchScope, searched: int, model: str | None, started: float, *, explain: bool
) -> dict[str, Any]:
    """Return the fields of SearchFacts. ``started`` is a time of ``time.perf_counter``."""
    pending = pending_items(scope)
    facts = {"searched": searched, "model": model or UNSET, "took_ms": round((perf_counter() - started) * 1000, 3)}
    return {"pending": pending if pending != PendingItems() else None, **(facts if explain else {})}


def source_fields(passage: ChunkPassage) -> dict[str, Any]:
    """Return the fields that identify the source of a passage."""
    chunk = passage.chunk
    is_document = chunk.source == "document"
    return {
        "source": chunk.source,
        "domain": chunk.place if is_document else None,
        "document_id": chunk.item if is_document else None,
        "session_id": passage.session_id,
        "message_id": passage.message_id,
        "agent_id": passage.agent_id,
        "event_id": passage.event_id,
        "key": passage.key,
        "memory_type": passage.memory_type,
        "workflow_id": passage.workflow_id,
        "owner": passage.owner,
        "title": passage.title if is_document and passage.title != chunk.item else "",
        "heading": chunk.heading if is_document else "",
        "speaker": chunk.speaker,
        "timestamp": from_micros(chunk.timestamp).replace(microsecond=0),
    }


def pending_items(scope: SearchScope) -> PendingItems:
    return PendingItems(
        documents=scope.pending_documents,
        events=scope.pending_events,
        by_words=bool(scope.own_by_words),
        partial=scope.partial,
    )


# Fields that search requests share, and the search they stand for.

MAX_QUERY_CHARACTERS = 2_000
QueryText = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="A question or keywords."),
]
PassageHandle = Annotated[
    str,
    msgspec.Meta(
        min_length=3,
        max_length=300,
        pattern=r"^[A-Za-z0-9_:-]+/[0-9]+\Z",
        description="The ref of a search result, such as domain:handbook/42.",
    ),
]
TopK = Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum results; pinned items come in addition.")]
ExplainOption = Annotated[
    bool,
    msgspec.Meta(description="Add signals and source refs to results, and what was searched, how and how long."),
]
MediaType = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[ -~]+\Z")]
KeyPrefix = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
EntityName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_VALUE_LENGTH, pattern=r"\S")]
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
    prefix: Annotated[
        KeyPrefix | None,
        msgspec.Meta(description="Only keys that begin with this, of your memory and of the board of session_id."),
    ] = None
    owner: Annotated[
        ShortText | None,
        msgspec.Meta(description="Only the memory of this owner: your own agent_id, team:NAME or user:NAME."),
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
    entities: Annotated[
        Annotated[list[EntityName], msgspec.Meta(min_length=1, max_length=20)] | None,
        msgspec.Meta(description="Only items that mention all of these, such as ada or file:src/app.py."),
    ] = None


class RankingOptions(ScopeFilters, kw_only=True):
    """Weights of the ranking, and the minimum score of a result."""

    min_score: Annotated[
        Fraction | None,
        msgspec.Meta(description="Minimum score of a result, 0 to 1; default: the agent's, or 0.7."),
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


def search_request(
    request: RankingOptions,
    actor: Actor,
    query: str,
    top_k: int,
    retriever: Retriever,
    default_min_score: float = DEFAULT_MIN_SCORE,
) -> SearchRequest:
    """Return the search that a request asks for."""
    chosen = (request.min_score, actor.min_score, default_min_score)
    weights = RankingWeights(
        min_score=next(min_score for min_score in chosen if min_score is not None),
        recency_weight=request.recency_weight,
        importance_weight=request.importance_weight,
        half_life_days=request.half_life_days,
    )
    text = checked_text("query", query) or ""
    return SearchRequest(
        Query(text=text, asked_at=retriever.now(), top_k=top_k, weights=weights, tuned=_is_tuned(request)),
        requested_scope(request),
    )


def _is_tuned(request: RankingOptions) -> bool:
    defaults = RankingWeights()
    weights = structs.replace(
        defaults,
        recency_weight=request.recency_weight,
        importance_weight=request.importance_weight,
        half_life_days=request.half_life_days,
    )
    return request.min_score is not None or weights != defaults


def checked_text(name: str, text: str | None) -> str | None:
    """Return a text that can be stored and is not blank."""
    if text is None:
        return None
    encode_json_field(name, text)
    if not text.strip():
        raise InvalidInput(f"{name}: is empty", field=name)
    return text


def requested_scope(request: ScopeFilters) -> RequestedScope:
    """Return the scope that a request asks for."""
    if request.domain is not None and request.domains is not None:
        raise InvalidInput("domains: give either domain or domains", field="domains")
    domains = [request.domain] if request.domain is not None else request.domains or []
    since, until = parse_range(request.since, request.until)
    if request.metadata:
        encode_json_field("metadata", request.metadata)
    scope = RequestedScope(
        domains=tuple(domains),
        session_id=request.session_id,
        sources=None if request.sources is None else frozenset(request.sources),
        metadata=request.metadata or {},
        types=tuple(request.types or ()),
        entities=tuple(request.entities or ()),
        prefix=request.prefix or "",
        owner=request.owner,
        since=since,
        until=until,
    )
    for field in ("prefix", "owner"):
        if getattr(request, field) is not None and not scope.searched_sources:
            raise InvalidInput(
                f"{field}: nothing else is searched with it than memory and, with prefix and session_id, a board",
                field=field,
            )
    return scope
