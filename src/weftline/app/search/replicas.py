"""Index replicas of this process, and the event for damaged files."""

from __future__ import annotations

import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weftline.access.sql import AccessStore
from weftline.app.background_tasks import BackgroundTasks
from weftline.app.search.replica import CollectionReplica, Name
from weftline.indexing.collections.model import MEMORY, SESSIONS, WINDOWS, collection_domain, index_damaged
from weftline.indexing.collections.sql import CollectionStore
from weftline.insight.alerts.service import Alerts
from weftline.insight.alerts.sql import AlertStore
from weftline.kernel.alerts import TENANT_SUBJECT
from weftline.kernel.identity import ANYONE, system_actor
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.knowledge.domains import cleared_for, domain_event
from weftline.knowledge.sql import DomainStore
from weftline.search.session_indexing.cursor import (
    REINDEXING_JOB,
    IndexCursor,
    ReindexRange,
    start_session_reindex,
)
from weftline.search_index.paths import folder_name
from weftline.search_index.pgvector_view import PgvectorView
from weftline.search_index.segment_store import SegmentStore
from weftline.search_index.snapshot import IndexSnapshot
from weftline.search_index.view import CollectionView
from weftline.storage.sql.database import Scope
from weftline.storage.sql.events import SqlEventStore, SqlOutbox
from weftline.storage.sql.jobs import SqlJobStore
from weftline.storage.sql.unit_of_work import logged_write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from weftline.app.metrics import Metrics
    from weftline.app.search.replica import Alarm
    from weftline.indexing.collections.model import IndexedChunk
    from weftline.indexing.collections.store import VectorSearch
    from weftline.kernel.clock import Clock
    from weftline.kernel.events import Outbox
    from weftline.kernel.transaction import Transaction
    from weftline.search.index_view import Audiences, CollectionQuery, View
    from weftline.storage.sql.database import Database

_MAX_BYTES_IN_MEMORY = 2**30
# Visibility of larger collections is computed in a thread.
_MAX_ROWS_ON_LOOP = 20_000
# Collections beyond this size get a vector index in the database (pgvector). Its existence is checked at this interval,
# sooner while it is missing.
_MIN_ROWS_FOR_VECTOR_INDEX = 10_000
_CHECK_SECONDS = 3_600.0
_RETRY_SECONDS = 60.0


class Indexes:
    """Index replicas of this process; the least recently used are evicted above a memory limit."""

    def __init__(self, database: Database, folder: Path | None = None, alarm: Alarm | None = None) -> None:
        self._database = database
        self._folder = folder
        self._alarm = alarm
        self._replicas: OrderedDict[Name, CollectionReplica] = OrderedDict()
        # When to check again for the vector index of a collection in the database.
        self._prepared_until: dict[Name, float] = {}
        self._tasks = BackgroundTasks()

    async def open(self, tenant: str, query: CollectionQuery, audiences: Audiences, model: str) -> View:
        """Return a view of the state committed before this call."""
        search = self._database.vector_search(tenant, query.collection, model)
        replica = self._replica(Name(tenant, query.collection, model if search is None else None))
        snapshot = await replica.now()
        self._evict()
        if search is None:
            create: Callable[[], CollectionView] = partial(CollectionView, query.collection, snapshot, query, audiences)
        else:
            self._prepare_soon(search, Name(tenant, query.collection, model), snapshot)
            create = partial(PgvectorView, query.collection, snapshot, query, audiences, search)
        view = create() if snapshot.size <= _MAX_ROWS_ON_LOOP else await SEARCH_THREADS.run(create)
        view.lag = max(0, replica.goal - snapshot.number)
        return view

    async def open_chunks(self, chunks: Sequence[IndexedChunk], query: CollectionQuery, audiences: Audiences) -> View:
        """Return a view of chunks that are in no collection, sorted by number."""
        snapshot = await SEARCH_THREADS.run(IndexSnapshot().advanced_to, 0, chunks, ())
        return CollectionView(query.collection, snapshot, query, audiences)

    async def prepare(self, tenant: str, collection: str, model: str) -> None:
        """Catch up the replica for a model, and build its vector index."""
        search = self._database.vector_search(tenant, collection, model)
        snapshot = await self._replica(Name(tenant, collection, model if search is None else None)).whole()
        if search is not None and snapshot.size > _MIN_ROWS_FOR_VECTOR_INDEX:
            await search.prepare()

    async def forget(self, tenant: str, collection: str, model: str) -> None:
        """Delete the replica for a model."""
        search = self._database.vector_search(tenant, collection, model)
        if search is not None:
            self._prepared_until.pop(Name(tenant, collection, model), None)
            await search.discard()
            return
        replica = self._replicas.pop(Name(tenant, collection, model), None) or self._new_replica(
            Name(tenant, collection, model)
        )
        await replica.forget()

    async def close(self) -> None:
        """Wait for running writes."""
        await self._tasks.close()

    def _prepare_soon(self, search: VectorSearch, name: Name, snapshot: IndexSnapshot) -> None:
        """Have the database build a vector index for a large collection."""
        now = time.monotonic()
        if snapshot.size > _MIN_ROWS_FOR_VECTOR_INDEX and now >= self._prepared_until.get(name, 0.0):
            self._prepared_until[name] = now + _RETRY_SECONDS
            self._tasks.run("vector index", self._prepare(search, name))

    async def _prepare(self, search: VectorSearch, name: Name) -> None:
        if await search.prepare():
            self._prepared_until[name] = time.monotonic() + _CHECK_SECONDS

    def _replica(self, name: Name) -> CollectionReplica:
        replica = self._replicas.get(name)
        if replica is None:
            replica = self._replicas[name] = self._new_replica(name)
        self._replicas.move_to_end(name)
        return replica

    def _new_replica(self, name: Name) -> CollectionReplica:
        return CollectionReplica(self._database, name, self._folder_of(name), self._tasks, self._alarm)

    def _folder_of(self, name: Name) -> SegmentStore | None:
        if self._folder is None:
            return None
        return SegmentStore(self._folder.joinpath(*(folder_name(part or "") for part in name)))

    def _evict(self) -> None:
        while (
            len(self._replicas) > 1
            and sum(replica.weight for replica in self._replicas.values()) > _MAX_BYTES_IN_MEMORY
        ):
            self._replicas.popitem(last=False)


class DamageAlarm:
    """Reports a damaged index: to metrics, and as an event and an alert to the admins of the tenant."""

    def __init__(self, database: Database, clock: Clock, metrics: Metrics) -> None:
        self._database = database
        self._clock = clock
        self._metrics = metrics

    async def __call__(self, tenant: str, collection: str, *, rows: bool = False) -> None:
        self._metrics.count_damaged_index()

        async def publish(transaction: Transaction) -> None:
            actor, outbox = system_actor(tenant), SqlOutbox(transaction, self._clock)
            domain = collection_domain(collection)
            readers = ANYONE if domain is None else await cleared_for(domain, DomainStore(transaction))
            if rows:
                # It locks the domain, which all others do before they publish.
                await _index_again(collection, transaction, outbox, actor.participant)
            await outbox.publish(index_damaged(collection, actor.participant, readers))
            alerts = Alerts(actor, AlertStore(transaction), AccessStore(transaction), outbox, self._clock)
            # Without the name of the collection: not every admin may know that there is such a domain.
            await alerts.raise_("index.damaged", TENANT_SUBJECT, {"in_database": rows})

        await logged_write(self._database, Scope(tenant), publish)


async def _index_again(collection: str, transaction: Transaction, outbox: Outbox, participant: str) -> None:
    """Start to index the stored texts of a collection again."""
    name = collection_domain(collection)
    if name is None:
        jobs = SqlJobStore(transaction)
        # What is being indexed again for another reason goes on.
        running = await jobs.progress(REINDEXING_JOB)
        known = (None if running is None else IndexCursor.of(running).reindex) or ReindexRange(0, 0)
        number = (await CollectionStore(transaction).state(collection)).number
        numbers = {SESSIONS: known.sessions, MEMORY: known.memory, WINDOWS: known.windows}
        numbers[collection] = max(numbers[collection], number)
        replaced = ReindexRange(numbers[SESSIONS], numbers[MEMORY], known.reembed, numbers[WINDOWS])
        await start_session_reindex(jobs, await SqlEventStore(transaction).last_seq(), replaced)
        return
    domains = DomainStore(transaction)
    domain = await domains.find_locked(name)
    if domain is not None:
        is_reembedding = domain.reindex_after is not None and domain.reembed
        await domains.update(replace(domain, reindex_after="", reembed=is_reembedding))
        await outbox.publish(domain_event("domain.reindexing", domain, participant))
