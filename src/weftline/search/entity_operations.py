"""Operation that lists the entities of what a caller may read."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from weftline.indexing.entities import MAX_VALUE_LENGTH, EntityType
from weftline.kernel.clock import from_micros
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.knowledge.model import DomainName, DomainNotFound
from weftline.search.entity_list import count_entities
from weftline.search.requests import checked_text
from weftline.search.retriever import Retriever
from weftline.search.scope import RequestedScope
from weftline.sessions.model import SessionId, SessionNotFound


class ListEntities(Request):
    """Which entities to list."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Only of this session; documents are still included.")
    ] = None
    domain: Annotated[DomainName | None, msgspec.Meta(description="Only of this knowledge domain.")] = None
    type: Annotated[EntityType | None, msgspec.Meta(description="Only entities of this type.")] = None
    query: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_VALUE_LENGTH)] | None,
        msgspec.Meta(description="Only entities whose name contains this text."),
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500, description="Maximum entities.")] = 50


class EntityInfo(Response, kw_only=True):
    """An entity, the number of passages that mention it, and the time of the last."""

    type: EntityType
    value: str
    count: int
    last_at: datetime


class EntityListing(Response, kw_only=True, omit_defaults=False):
    """Entities, the most frequent first. ``complete``: nothing was left out, neither entities nor older passages."""

    entities: list[EntityInfo]
    complete: bool


@operation(
    "entity.list",
    heavy=True,
    tool="list_entities",
    http="GET /v1/entities",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, SessionNotFound),
)
async def list_entities(request: ListEntities, actor: Actor, retriever: Retriever) -> EntityListing:
    """List people, agents, projects, files, identifiers, dates, URLs and e-mail addresses in what you may see.

    Counted over the newest 1,000 passages with entities, or over all that mention an entity named exactly by query.
    """
    filters = RequestedScope(domains=() if request.domain is None else (request.domain,), session_id=request.session_id)
    query = checked_text("query", request.query)
    found = await count_entities(retriever, actor, filters, request.type, query)
    return EntityListing(
        entities=[
            EntityInfo(type=entity.type, value=entity.value, count=mentions, last_at=from_micros(last_at))
            for entity, mentions, last_at in found.entities[: request.limit]
        ],
        complete=found.complete and len(found.entities) <= request.limit,
    )
