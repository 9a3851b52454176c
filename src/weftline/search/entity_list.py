"""Entities that items mention, counted over what a caller may read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.indexing.entities import filter_term, unpack_entities
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.search.passages import read_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.indexing.entities import Entity
    from weftline.kernel.identity import Actor
    from weftline.search.index_view import View
    from weftline.search.passages import ChunkPassage
    from weftline.search.pulled_memory import PulledMemory
    from weftline.search.retriever import Retriever
    from weftline.search.scope import RequestedScope

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
