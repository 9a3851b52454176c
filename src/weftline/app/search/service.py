"""Search at runtime: index replicas, ranking and index lag."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from weftline.indexing.collections.model import SOURCES
from weftline.indexing.collections.sql import CollectionStore
from weftline.jobs.runner import attempt
from weftline.kernel.thread_pools import SEARCH_THREADS, SHORT_THREADS
from weftline.search.session_indexing.cursor import (
    EMBEDDING_JOB,
    VectorBacklog,
    changed_memory,
    pending_source,
)
from weftline.search.stores import PendingEvents
from weftline.search_index.paths import remove_unknown
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.jobs import SqlJobStore
from weftline.storage.sql.session_index import unindexed_events
from weftline.storage.sql.tenants import tenant_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from weftline.app.metrics import Metrics
    from weftline.app.search.replicas import Indexes
    from weftline.indexing.collections.model import CollectionState, IndexedChunk, Source
    from weftline.kernel.clock import Clock
    from weftline.kernel.events import NewEvent, StoredEvent
    from weftline.kernel.identity import Actor
    from weftline.kernel.ports import Transactions
    from weftline.kernel.transaction import Transaction
    from weftline.search.index_view import Audiences, CollectionQuery, View
    from weftline.search.model import Query, Ranking
    from weftline.search.retriever import Embed
    from weftline.search.scope import RequestedScope
    from weftline.search.stores import SearchStores
    from weftline.storage.sql.database import Database

# Every search checks at most this many unindexed events for its caller.
_MAX_PENDING = 1_000
# If there are more, it also looks for its caller's among the newest.
_MAX_NEWEST = 200
# Fewer change records are not worth a transaction.
_MIN_PRUNED = 1_000
_REPORT_INTERVAL = timedelta(minutes=1)
# Imported by the first search, because it is slow to import.
_RANKING = "weftline.search.ranking"
_loaded: dict[str, Any] = {}


class SearchIndexes:
    """Views of collections. The index code is slow to import and is loaded by the first search."""

    def __init__(self, database: Database, folder: Path, clock: Clock, metrics: Metrics) -> None:
        self._database = database
        self._folder = folder
        self._clock = clock
        self._metrics = metrics
        self._indexes: Indexes | None = None

    async def open(self, tenant: str, query: CollectionQuery, audiences: Audiences, model: str) -> View:
        return await (await self._loaded()).open(tenant, query, audiences, model)

    async def open_chunks(self, chunks: Sequence[IndexedChunk], query: CollectionQuery, audiences: Audiences) -> View:
        return await (await self._loaded()).open_chunks(chunks, query, audiences)

    async def prepare(self, tenant: str, collections: Iterable[str], model: str) -> None:
        """Build the replicas of collections for a model."""
        indexes = await self._loaded()
        for collection in collections:
            await indexes.prepare(tenant, collection, model)

    async def forget(self, tenant: str, collections: Iterable[str], model: str) -> None:
        """Delete the replicas of collections for a model that is no longer used."""
        indexes = await self._loaded()
        for collection in collections:
            await indexes.forget(tenant, collection, model)

    async def sweep(self) -> None:
        """Remove files of deleted collections, and change records that no replica needs any more."""
        tenants = await self._database.read(SYSTEM, tenant_names)
        collections = {tenant: await self._database.read(Scope(tenant), _collections) for tenant in tenants}
        await SHORT_THREADS.run(remove_unknown, self._folder, {tenant: set(collections[tenant]) for tenant in tenants})
        for tenant, states in collections.items():
            await self._prune_changes(Scope(tenant), states)
            await self._database.tidy_vectors(tenant)

    async def close(self) -> None:
        if self._indexes is not None:
            await self._indexes.close()

    async def _prune_changes(self, scope: Scope, collections: Mapping[str, CollectionState]) -> None:
        for collection, state in collections.items():
            has_more = state.prunable >= _MIN_PRUNED
            while has_more:
                has_more = await self._database.write(scope, partial(_prune_batch, collection))

    async def _loaded(self) -> Indexes:
        if self._indexes is None:
            indexes = await SEARCH_THREADS.run(self._made)
            # A concurrent search may have loaded it first.
            self._indexes = self._indexes or indexes
        return self._indexes

    def _made(self) -> Indexes:
        from weftline.app.search.replicas import DamageAlarm, Indexes  # noqa: PLC0415 - slow to import

        return Indexes(self._database, self._folder, DamageAlarm(self._database, self._clock, self._metrics))


async def _collections(transaction: Transaction) -> dict[str, CollectionState]:
    store = CollectionStore(transaction)
    return {collection: await store.state(collection) for collection in await store.names()}


async def _prune_batch(collection: str, transaction: Transaction) -> bool:
    return await CollectionStore(transaction).prune_changes(collection)


class IndexLag:
    """Unindexed events of sessions and memories, as far as the caller may see them."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def pending(self, actor: Actor, filters: RequestedScope, readable: Collection[str]) -> PendingEvents:
        found = await unindexed_events(self._transaction, _MAX_PENDING, _MAX_NEWEST)

        def source(event: StoredEvent) -> Source | None:
            return pending_source(event, actor, filters, readable)

        own = (event for event in (*found.new, *found.newest) if event.principal_id == actor.principal_id)
        return PendingEvents(
            # Other events are not counted: the number would reveal the activity of others.
            sum(source(event) is not None for event in (*found.new, *found.old)),
            tuple(sorted(event.event.seq for event in own if source(event) in filters.waits_for)),
            _changed_memories((*found.new, *found.old, *found.newest), readable),
            await self._by_words(actor, filters.searched_sources & filters.waits_for),
        )

    async def _by_words(self, actor: Actor, sources: Collection[Source]) -> dict[str, int]:
        """Return the caller's last chunk without a vector of each collection of these sources that has one."""
        searched = {SOURCES[source].collection for source in sources}
        backlog = VectorBacklog.of(await SqlJobStore(self._transaction).progress(EMBEDDING_JOB))
        own = backlog.own.get(actor.principal_id, {})
        return {collection: number for collection, number in own.items() if collection in searched}


def _changed_memories(events: Iterable[StoredEvent], readable: Collection[str]) -> dict[str, int]:
    """Return the roots of readable memories that events change, with the version before the first change."""
    before: dict[str, int] = {}
    for changed in filter(None, map(changed_memory, events)):
        if changed.place in readable and changed.line_id is not None:
            before[changed.line_id] = min(changed.after, before.get(changed.line_id, changed.after))
    return before


class LowRelevanceReporter:
    """Publishes an event when searches of an agent find nothing relevant, at most once per interval."""

    def __init__(self, stores: Transactions[SearchStores], clock: Clock, metrics: Metrics) -> None:
        self._stores = stores
        self._clock = clock
        self._metrics = metrics
        # Time of the last report by agent, oldest first.
        self._reported: dict[tuple[str, str], datetime] = {}

    async def report(self, actor: Actor, event: NewEvent) -> None:
        self._metrics.count_low_relevance()
        if self._is_due((actor.tenant, actor.principal_id)):
            await attempt("low relevance", self._stores.write(actor, partial(_publish, event)))

    def _is_due(self, who: tuple[str, str]) -> bool:
        now = self._clock.now()
        while self._reported and now - next(iter(self._reported.values())) >= _REPORT_INTERVAL:
            del self._reported[next(iter(self._reported))]
        if who in self._reported:
            return False
        self._reported[who] = now
        return True


async def _publish(event: NewEvent, stores: SearchStores) -> None:
    await stores.outbox.publish(event)


async def rank(query: Query, views: Sequence[View], embed: Embed) -> Ranking:
    """Rank the passages visible to the caller."""
    ranked: Ranking = await (await _ranking()).rank(query, views, embed)
    return ranked


async def _ranking() -> Any:  # noqa: ANN401 - a module
    """Return the module that ranks, loaded in a thread. ``sys.modules`` has it already while another call loads it."""
    found = _loaded.get(_RANKING)
    if found is None:
        found = _loaded[_RANKING] = await SEARCH_THREADS.run(import_module, _RANKING)
    return found
