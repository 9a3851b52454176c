"""Index replicas of this process, and the event for damaged files."""

from __future__ import annotations

import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from weft.app.background_tasks import BackgroundTasks
from weft.app.search.replica import CollectionReplica, Name
from weft.capabilities.indexing.collections.events import index_damaged
from weft.capabilities.indexing.collections.model import collection_domain
from weft.capabilities.knowledge.domains import cleared_for
from weft.kernel.identity import ANYONE, system_actor
from weft.kernel.thread_pools import SEARCH_THREADS
from weft.search_index.paths import folder_name
from weft.search_index.pgvector_view import PgvectorView
from weft.search_index.segment_store import SegmentStore
from weft.search_index.view import CollectionView
from weft.storage.sql.database import Scope
from weft.storage.sql.events import SqlOutbox
from weft.storage.sql.knowledge import SqlDomainStore
from weft.storage.sql.unit_of_work import log_changes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from weft.app.metrics import Metrics
    from weft.app.search.replica import Alarm
    from weft.capabilities.indexing.collections.store import VectorSearch
    from weft.capabilities.search.index_view import Audiences, CollectionQuery, View
    from weft.kernel.clock import Clock
    from weft.kernel.events import NewEvent
    from weft.search_index.snapshot import IndexSnapshot
    from weft.storage.sql.database import Database, Transaction

_MOST_BYTES_IN_MEMORY = 2**30
# Rows whose visibility is computed between two yields to the event loop.
_SEEN_AT_ONCE = 20_000
# Collections beyond this size get a vector index in the database (pgvector). Its existence is checked at this interval,
# sooner while it is missing.
_INDEXED_BEYOND = 10_000
_LOOKED_FOR_EVERY_SECONDS = 3_600.0
_REST_SECONDS = 60.0


class Indexes:
    """Index replicas of this process; the least recently used are evicted above a memory limit."""

    def __init__(self, database: Database, folder: Path | None = None, alarm: Alarm | None = None) -> None:
        self._database = database
        self._folder = folder
        self._alarm = alarm
        self._copies: OrderedDict[Name, CollectionReplica] = OrderedDict()
        # When to check again for the vector index of a collection in the database.
        self._prepared_until: dict[Name, float] = {}
        self._errands = BackgroundTasks()

    async def open(self, tenant: str, wish: CollectionQuery, audiences: Audiences, model: str) -> View:
        """Return a view of the state committed before this call."""
        search = self._database.vector_search(tenant, wish.collection, model)
        copy = self._copy(Name(tenant, wish.collection, model if search is None else None))
        snapshot = await copy.now()
        self._let_go()
        if search is None:
            make: Callable[[], CollectionView] = partial(CollectionView, wish.collection, snapshot, wish, audiences)
        else:
            self._prepare_soon(search, Name(tenant, wish.collection, model), snapshot)
            make = partial(PgvectorView, wish.collection, snapshot, wish, audiences, search)
        view = make() if snapshot.size <= _SEEN_AT_ONCE else await SEARCH_THREADS.run(make)
        view.behind = max(0, copy.goal - snapshot.number)
        return view

    async def prepare(self, tenant: str, collection: str, model: str) -> None:
        """Catch up the replica for a model, and build its vector index."""
        search = self._database.vector_search(tenant, collection, model)
        snapshot = await self._copy(Name(tenant, collection, model if search is None else None)).whole()
        if search is not None and snapshot.size > _INDEXED_BEYOND:
            await search.prepare()

    async def forget(self, tenant: str, collection: str, model: str) -> None:
        """Delete the replica for a model."""
        search = self._database.vector_search(tenant, collection, model)
        if search is not None:
            self._prepared_until.pop(Name(tenant, collection, model), None)
            await search.discard()
            return
        copy = self._copies.pop(Name(tenant, collection, model), None) or self._new_copy(
            Name(tenant, collection, model)
        )
        await copy.forget()

    async def close(self) -> None:
        """Wait for running writes."""
        await self._errands.close()

    def _prepare_soon(self, search: VectorSearch, name: Name, snapshot: IndexSnapshot) -> None:
        """Have the database build a vector index for a large collection."""
        now = time.monotonic()
        if snapshot.size > _INDEXED_BEYOND and now >= self._prepared_until.get(name, 0.0):
            self._prepared_until[name] = now + _REST_SECONDS
            self._errands.run("vector index", self._prepare(search, name))

    async def _prepare(self, search: VectorSearch, name: Name) -> None:
        if await search.prepare():
            self._prepared_until[name] = time.monotonic() + _LOOKED_FOR_EVERY_SECONDS

    def _copy(self, name: Name) -> CollectionReplica:
        copy = self._copies.get(name)
        if copy is None:
            copy = self._copies[name] = self._new_copy(name)
        self._copies.move_to_end(name)
        return copy

    def _new_copy(self, name: Name) -> CollectionReplica:
        return CollectionReplica(self._database, name, self._folder_of(name), self._errands, self._alarm)

    def _folder_of(self, name: Name) -> SegmentStore | None:
        if self._folder is None:
            return None
        return SegmentStore(self._folder.joinpath(*(folder_name(part or "") for part in name)))

    def _let_go(self) -> None:
        while len(self._copies) > 1 and sum(copy.weight for copy in self._copies.values()) > _MOST_BYTES_IN_MEMORY:
            self._copies.popitem(last=False)


class DamageAlarm:
    """Reports damaged index files: to the log and metrics, and as an event to the admins of the tenant."""

    def __init__(self, database: Database, clock: Clock, metrics: Metrics) -> None:
        self._database = database
        self._clock = clock
        self._metrics = metrics

    async def __call__(self, tenant: str, collection: str) -> None:
        self._metrics.count_damaged_index()
        scope = Scope(tenant)

        async def publish(transaction: Transaction) -> NewEvent:
            domain = collection_domain(collection)
            readers = ANYONE if domain is None else await cleared_for(domain, SqlDomainStore(transaction))
            event = index_damaged(collection, system_actor(tenant).participant, readers)
            await SqlOutbox(transaction, self._clock).publish(event)
            return event

        log_changes(scope, [await self._database.write(scope, publish)])
