"""Fields that search requests share, and the search they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from weftline.indexing.collections.model import SOURCES, Source
from weftline.indexing.entities import MAX_VALUE_LENGTH
from weftline.kernel.errors import InvalidInput
from weftline.kernel.fields import Fraction, ShortText
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Request
from weftline.kernel.timestamps import TimestampText, parse_range
from weftline.knowledge.documents import MetadataValue
from weftline.knowledge.model import DomainName
from weftline.search.model import (
    DEFAULT_HALF_LIFE_DAYS,
    DEFAULT_IMPORTANCE_WEIGHT,
    DEFAULT_MIN_SCORE,
    DEFAULT_RECENCY_WEIGHT,
    Query,
    RankingWeights,
)
from weftline.search.retriever import SearchRequest
from weftline.search.scope import RequestedScope
from weftline.sessions.model import SessionId

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.search.retriever import Retriever

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
