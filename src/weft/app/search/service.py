"""Searching, put together: copies of collections, the ranking of what is on them, and how far they are behind."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.capabilities.search.session_indexing.lag import is_awaited
from weft.jobs.runner import attempt
from weft.kernel.thread_pools import SEARCH_THREADS
from weft.search_index.paths import remove_unknown
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.database import SYSTEM, Scope
from weft.storage.sql.session_index import first_pending
from weft.storage.sql.tenants import tenant_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from weft.app.metrics import Metrics
    from weft.app.search.replicas import Indexes
    from weft.capabilities.indexing.collections.model import CollectionState
    from weft.capabilities.search.index_view import Audiences, CollectionQuery, View
    from weft.capabilities.search.model import Query, Ranking
    from weft.capabilities.search.retriever import Embed
    from weft.capabilities.search.scope import RequestedScope
    from weft.capabilities.search.stores import SearchStores
    from weft.kernel.clock import Clock
    from weft.kernel.events import NewEvent
    from weft.kernel.identity import Actor
    from weft.kernel.transactions import Transactions
    from weft.storage.sql.database import Database, Transaction

# So many of the events that were not looked at yet are judged by every search.
_LOOKED_AT = 1_000
# Fewer changes are not worth a transaction.
_WORTH_FORGETTING = 1_000
_TOLD_EVERY = timedelta(minutes=1)
# Loaded by the first search, as it takes long to import.
_RANKING = "weft.capabilities.search.ranking"


class SearchIndexes:
    """Views of collections. What they are made with takes long to import, and is loaded by the first search."""

    def __init__(self, database: Database, folder: Path, clock: Clock, metrics: Metrics) -> None:
        self._database = database
        self._folder = folder
        self._clock = clock
        self._metrics = metrics
        self._indexes: Indexes | None = None

    async def open(self, tenant: str, wish: CollectionQuery, audiences: Audiences, model: str) -> View:
        return await (await self._loaded()).open(tenant, wish, audiences, model)

    async def prepare(self, tenant: str, collections: Iterable[str], model: str) -> None:
        """Get ready for searches with a model that may not have been searched with yet."""
        indexes = await self._loaded()
        for collection in collections:
            await indexes.prepare(tenant, collection, model)

    async def forget(self, tenant: str, collections: Iterable[str], model: str) -> None:
        """Let go of what was made for searches with a model that is not searched with any more."""
        indexes = await self._loaded()
        for collection in collections:
            await indexes.forget(tenant, collection, model)

    async def sweep(self) -> None:
        """Remove files of deleted collections, and change records that no replica needs any more."""
        tenants = await self._database.read(SYSTEM, tenant_names)
        collections = {tenant: await self._database.read(Scope(tenant), _collections) for tenant in tenants}
        await asyncio.to_thread(remove_unknown, self._folder, {tenant: set(collections[tenant]) for tenant in tenants})
        for tenant, states in collections.items():
            await self._forget_changes(Scope(tenant), states)
            await self._database.tidy_vectors(tenant)

    async def close(self) -> None:
        if self._indexes is not None:
            await self._indexes.close()

    async def _forget_changes(self, scope: Scope, collections: Mapping[str, CollectionState]) -> None:
        for collection, state in collections.items():
            has_more = state.forgettable >= _WORTH_FORGETTING
            while has_more:
                has_more = await self._database.write(scope, partial(_forget_some, collection))

    async def _loaded(self) -> Indexes:
        if self._indexes is None:
            made = await SEARCH_THREADS.run(self._made)
            # Another search may have been as early.
            self._indexes = self._indexes or made
        return self._indexes

    def _made(self) -> Indexes:
        from weft.app.search.replicas import DamageAlarm, Indexes  # noqa: PLC0415 - only who searches has it

        return Indexes(self._database, self._folder, DamageAlarm(self._database, self._clock, self._metrics))


async def _collections(transaction: Transaction) -> dict[str, CollectionState]:
    store = SqlCollectionStore(transaction)
    return {collection: await store.state(collection) for collection in await store.names()}


async def _forget_some(collection: str, transaction: Transaction) -> bool:
    return await SqlCollectionStore(transaction).forget_changes(collection)


class IndexLag:
    """How far the collections of sessions and memories are behind the log, as far as a caller may know."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def events(self, actor: Actor, part: RequestedScope) -> int:
        pending = await first_pending(self._transaction, _LOOKED_AT)
        # Of what is further behind nothing is told: it would tell of what others do.
        return sum(is_awaited(recorded, actor, part) for recorded in pending)


class LowRelevanceReporter:
    """Tells that searches find nothing relevant: every agent's now and then, however many it makes."""

    def __init__(self, stores: Transactions[SearchStores], clock: Clock, metrics: Metrics) -> None:
        self._stores = stores
        self._clock = clock
        self._metrics = metrics
        # When it was last told of whom, the earliest first.
        self._told: dict[tuple[str, str], datetime] = {}

    async def tell(self, actor: Actor, event: NewEvent) -> None:
        self._metrics.count_low_relevance()
        if self._is_due((actor.tenant, actor.principal_id)):
            await attempt("low relevance", self._stores.write(actor, partial(_publish, event)))

    def _is_due(self, who: tuple[str, str]) -> bool:
        now = self._clock.now()
        while self._told and now - next(iter(self._told.values())) >= _TOLD_EVERY:
            del self._told[next(iter(self._told))]
        if who in self._told:
            return False
        self._told[who] = now
        return True


async def _publish(event: NewEvent, library: SearchStores) -> None:
    await library.outbox.publish(event)


async def rank(question: Query, views: Sequence[View], embed: Embed) -> Ranking:
    """Rank what a caller may see, once what that takes is loaded."""
    ranking: Any = sys.modules.get(_RANKING) or await SEARCH_THREADS.run(import_module, _RANKING)
    ranked: Ranking = await ranking.rank(question, views, embed)
    return ranked
