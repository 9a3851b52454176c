"""Operation that lists the entities of what a caller may read."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import structs

from weftline.indexing.entities import MAX_VALUE_LENGTH, EntityType, filter_term, unpack_entities
from weftline.kernel.clock import from_micros
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.knowledge.model import DomainName, DomainNotFound
from weftline.search.passages import read_numbers
from weftline.search.results import checked_text
from weftline.search.retriever import Retriever
from weftline.search.scope import RequestedScope
from weftline.sessions.model import SessionId, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.indexing.entities import Entity
    from weftline.search.model import View
    from weftline.search.passages import ChunkPassage
    from weftline.search.pulled_memory import PulledMemory


# Entities that items mention, counted over what a caller may read.

# Newest chunks that are read to count entities, and how many at a time.
MAX_CHUNKS, _BATCH_SIZE = 1_000, 250


class CountedEntity(NamedTuple):
    """An entity, the number of chunks that mention it, and the time of the last of them."""

    entity: Entity
    mentions: int
    last_at: int


class EntityCounts(NamedTuple):
    """Entities, the most frequent first. ``complete``: all visible chunks with entities were read."""

    entities: list[CountedEntity]
    complete: bool


async def count_entities(
    retriever: Retriever, actor: Actor, filters: RequestedScope, kind: str | None, query: str | None
) -> EntityCounts:
    """Return the entities of the newest chunks that the caller may read now, of one type and with a text in their name.

    An entity that the text names exactly is counted over all chunks that mention it.
    """
    terms = [f"{kind or ''}:"]
    numbers: list[tuple[str, int]] = []
    pulled: PulledMemory | None = None
    complete = True
    if query is not None:
        named = f"{kind}:{query}" if kind else query
        numbers, pulled, complete = await _newest(retriever, actor, filters, [*terms, filter_term(named)])
    if not numbers:
        numbers, pulled, complete = await _newest(retriever, actor, filters, terms)
    counts: dict[str, CountedEntity] = {}
    for start in range(0, len(numbers), _BATCH_SIZE):
        # In batches: other calls are served in between.
        read = partial(read_numbers, numbers[start : start + _BATCH_SIZE], pulled)
        passages = await retriever.stores.read(actor, read, heavy=True)
        _count(passages.values(), kind, (query or "").casefold(), counts)
    return EntityCounts(sorted(counts.values(), key=_order), complete)


async def _newest(
    retriever: Retriever, actor: Actor, filters: RequestedScope, terms: Sequence[str]
) -> tuple[list[tuple[str, int]], PulledMemory | None, bool]:
    """Return the newest visible chunks with all of some entity terms, and whether there are no others.

    With them, the memory of the session that they may be from.
    """
    wanted = structs.replace(filters, entities=(*filters.entities, *terms))
    scope, views = await retriever.open_scope(actor, wanted)
    newest = await SEARCH_THREADS.run(lambda: [each for view in views for each in _newest_of(view)])
    newest.sort(key=lambda each: (-each[0], each[1:]))
    size = sum(view.size for view in views)
    keys = [(collection, number) for _, collection, number in newest[:MAX_CHUNKS]]
    return keys, scope.pulled, size <= MAX_CHUNKS


def _newest_of(view: View) -> list[tuple[int, str, int]]:
    columns = view.columns(view.newest(MAX_CHUNKS))
    known = zip(columns.timestamp.tolist(), columns.number.tolist(), strict=True)
    return [(timestamp, view.collection, number) for timestamp, number in known]


def _count(passages: Iterable[ChunkPassage], kind: str | None, text: str, counts: dict[str, CountedEntity]) -> None:
    for passage in passages:
        for entity in unpack_entities(passage.chunk.entities):
            if (kind is None or entity.type == kind) and text in entity.value.casefold():
                known = counts.get(entity.key, CountedEntity(entity, 0, 0))
                last_at = max(known.last_at, passage.chunk.timestamp)
                counts[entity.key] = CountedEntity(known.entity, known.mentions + 1, last_at)


def _order(counted: CountedEntity) -> tuple[int, int, str]:
    return -counted.mentions, -counted.last_at, counted.entity.key


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
