"""Search at runtime: index replicas, ranking and index lag."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from weftline.indexing.collections import SOURCES
from weftline.indexing.sql import CollectionStore
from weftline.jobs.runner import attempt
from weftline.jobs.session_indexing import INDEX
from weftline.jobs.vectors import EMBED
from weftline.kernel.job_store import JobStore
from weftline.kernel.thread_pools import SEARCH_THREADS, SHORT_THREADS
from weftline.search.persistent_memory import PendingEvents
from weftline.search.session_cursor import EMBEDDING_JOB, VectorBacklog, changed_memory, pending_source
from weftline.search_index.paths import remove_unknown
from weftline.sessions.events.sql import EventStore
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.session_index import indexed_up_to, is_indexed, unindexed_events
from weftline.storage.sql.tenants import tenant_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from weftline.app.metrics import Metrics
    from weftline.app.search.replica import Indexes
    from weftline.indexing.collections import CollectionState, IndexedChunk, Source
    from weftline.jobs.scheduler import Scheduler
    from weftline.jobs.session_indexing import SessionIndexing
    from weftline.jobs.vectors import SessionVectors
    from weftline.kernel.clock import Clock
    from weftline.kernel.events import NewEvent, StoredEvent
    from weftline.kernel.identity import Actor
    from weftline.kernel.ports import Transactions
    from weftline.kernel.transaction import Transaction
    from weftline.search.model import Audiences, CollectionQuery, Query, Ranking, View
    from weftline.search.persistent_memory import SearchStores
    from weftline.search.retriever import Embed
    from weftline.search.scope import RequestedScope
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
        from weftline.app.search.replica import DamageAlarm, Indexes  # noqa: PLC0415 - slow to import

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
        backlog = VectorBacklog.of(await JobStore(self._transaction).progress(EMBEDDING_JOB))
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


# Fresh searches: a search waits briefly until what its own caller has written is found, by meaning too.
#
# Nobody waits for the writes of others. A caller that waited in vain does not wait again until the index has caught
# up, so that neither a flood of writes nor a slow embedder delays search after search.

# Another process may hold the lease of the tenant's indexing; its progress is read from the database.
_POLL_SECONDS = 0.02
_MAX_LATE = 10_000


class BoundedIndexWait:
    """Waits for the caller's own writes, at most a setting's time; 0: not at all, as where nothing is indexed."""

    def __init__(
        self,
        database: Database,
        indexing: SessionIndexing,
        vectors: SessionVectors,
        scheduler: Scheduler,
        milliseconds: int,
    ) -> None:
        self._database = database
        self._indexing = indexing
        self._vectors = vectors
        self._scheduler = scheduler
        self._seconds = milliseconds / 1_000
        # The last event that a caller waited for in vain, oldest first.
        self._late: OrderedDict[tuple[str, str], int] = OrderedDict()
        # The chunks whose vectors a caller waited for in vain.
        self._late_vectors: OrderedDict[tuple[str, str], dict[str, int]] = OrderedDict()

    async def until_indexed(self, actor: Actor, own: Sequence[int]) -> bool:
        if not self._seconds or await self._is_late(actor):
            return False
        loop, tenant = asyncio.get_running_loop(), actor.tenant
        deadline = loop.time() + self._seconds
        indexed = self._indexing.index_next(tenant, own)
        self._scheduler.wake(INDEX, 0.0)
        try:
            while (left := deadline - loop.time()) > 0:
                await asyncio.wait([indexed], timeout=min(left, _POLL_SECONDS))
                if indexed.done() or await self._indexed_up_to(tenant) >= own[-1]:
                    return True
        finally:
            indexed.cancel()
        self._note_late(actor, own[-1])
        return False

    async def until_embedded(self, actor: Actor, chunks: Mapping[str, int], since: float) -> bool:
        loop, caller = asyncio.get_running_loop(), (actor.tenant, actor.principal_id)
        late = self._late_vectors.get(caller, {})
        backlog = await self._vector_backlog(actor.tenant)
        if not self._seconds or any(backlog.lacks(*each) for each in late.items()):
            return False
        self._late_vectors.pop(caller, None)
        while loop.time() < since + self._seconds:
            self._vectors.embed_next(actor.tenant, chunks)
            self._scheduler.wake(EMBED, 0.0)
            await asyncio.sleep(_POLL_SECONDS)
            own = (await self._vector_backlog(actor.tenant)).own.get(actor.principal_id, {})
            # It may have written more meanwhile.
            if all(own.get(collection, number + 1) > number for collection, number in chunks.items()):
                return True
        self._late_vectors[caller] = dict(chunks)
        if len(self._late_vectors) > _MAX_LATE:
            self._late_vectors.popitem(last=False)
        return False

    async def until_all_indexed(self, tenant: str) -> None:
        """Wait until everything that a tenant has written so far is indexed: for a process that serves one caller."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        last = await self._database.read(Scope(tenant), lambda tx: EventStore(tx).last_seq())
        while loop.time() < deadline and not await self._database.read(Scope(tenant), partial(is_indexed, last=last)):
            self._scheduler.wake(INDEX, 0.0)
            await asyncio.sleep(_POLL_SECONDS)

    async def _is_late(self, actor: Actor) -> bool:
        """Tell whether the index has not yet reached what the caller last waited for."""
        caller = (actor.tenant, actor.principal_id)
        if caller not in self._late:
            return False
        if await self._indexed_up_to(actor.tenant) < self._late[caller]:
            return True
        self._late.pop(caller, None)
        return False

    def _note_late(self, actor: Actor, seq: int) -> None:
        self._late[actor.tenant, actor.principal_id] = seq
        if len(self._late) > _MAX_LATE:
            self._late.popitem(last=False)

    async def _vector_backlog(self, tenant: str) -> VectorBacklog:
        progress = await self._database.read(Scope(tenant), lambda tx: JobStore(tx).progress(EMBEDDING_JOB))
        return VectorBacklog.of(progress)

    async def _indexed_up_to(self, tenant: str) -> int:
        return await self._database.read(Scope(tenant), indexed_up_to)
