"""Replica of one collection's index: segment files plus newer rows in memory, caught up before each search."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from weftline.access.sql import AccessStore
from weftline.app.caches import BackgroundTasks
from weftline.indexing.collections import MEMORY, SESSIONS, WINDOWS, collection_domain, index_damaged
from weftline.indexing.sql import CollectionStore
from weftline.insight.alerts.service import Alerts
from weftline.insight.alerts.sql import AlertStore
from weftline.jobs.runner import attempt
from weftline.kernel.events import TENANT_SUBJECT
from weftline.kernel.identity import ANYONE, system_actor
from weftline.kernel.job_store import JobStore
from weftline.kernel.outbox import Outbox
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.knowledge.domains import cleared_for, domain_event
from weftline.knowledge.sql import DomainStore
from weftline.search.session_cursor import REINDEXING_JOB, IndexCursor, ReindexRange, start_session_reindex
from weftline.search_index.paths import folder_name
from weftline.search_index.segment_file import Damaged
from weftline.search_index.segment_store import SegmentStore
from weftline.search_index.snapshot import IndexSnapshot
from weftline.search_index.view import CollectionView, PgvectorView
from weftline.sessions.events.sql import EventStore
from weftline.storage.sql.database import Scope
from weftline.storage.sql.unit_of_work import logged_write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from weftline.app.metrics import Metrics
    from weftline.indexing.collections import CollectionState, IndexedChunk, Removal, VectorSearch
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.search.model import Audiences, CollectionQuery, View
    from weftline.search_index.segment_store import LoadedSnapshot
    from weftline.storage.sql.database import Database


class Alarm(Protocol):
    """Reports a damaged index. ``rows``: what is in the database is damaged, so it is indexed again."""

    async def __call__(self, tenant: str, collection: str, *, rows: bool = False) -> None: ...


_log = logging.getLogger("weftline.search_index")
_READ_BATCH_SIZE = 4_096
# Rows read, and removals applied, between two yields to the event loop.
_SMALL_BATCH = 64
# Rows in memory that are flushed to a segment file; more at once during a bulk load.
_FLUSH_ROWS = 8_192
_BULK_FLUSH_ROWS = 65_536
# How long a search waits for a replica to catch up before it uses what is there.
_MAX_WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.1
# Pause after a failed write.
_RETRY_SECONDS = 60.0
# Interval at which some blocks of the files in use are verified against their checksums.
_VERIFY_SECONDS = 1.0


class Name(NamedTuple):
    """Collection and embedding model of a replica; no model if the vectors stay in the database."""

    tenant: str
    collection: str
    model: str | None


class _Step(NamedTuple):
    """Changes of a collection up to a number; those up to ``pruned_up_to`` are no longer retained."""

    number: int
    chunks: Sequence[IndexedChunk]
    removed: Sequence[int]
    pruned_up_to: int


class _Built(NamedTuple):
    """Segment files written for a replica with this generation and start; None if not written."""

    generation: int
    began: int
    snapshot: IndexSnapshot | None


class CollectionReplica:
    """Replica of one collection: a snapshot in files and memory that follows the collection."""

    def __init__(
        self, database: Database, name: Name, folder: SegmentStore | None, tasks: BackgroundTasks, alarm: Alarm | None
    ) -> None:
        self._database = database
        self._scope = Scope(name.tenant)
        self._name = name
        self._folder = folder
        self._tasks = tasks
        self._alarm = alarm
        self._generation = 0
        self._snapshot = IndexSnapshot()
        # Changes up to this number are reflected in the rows that were read.
        self._began = 0
        self._is_loaded = False
        self._is_lagging = self._is_building = self._is_verifying = False
        self._retry_at = 0.0
        self._verify_at = time.monotonic() + _VERIFY_SECONDS
        # Generation and number at which the rows were last counted, and whether damaged vectors are reported.
        self._checked = (0, -1)
        self._knows_damage = False
        # Number of the collection at the last check.
        self.goal = 0
        self._lock = asyncio.Lock()

    @property
    def weight(self) -> int:
        return self._snapshot.bytes_in_memory + sum(part.masks.bytes for part in self._snapshot.parts)

    async def now(self) -> IndexSnapshot:
        """Return the committed state, or what is there if the replica lags far."""
        if not (self._is_lagging and self._lock.locked()):
            async with self._lock:
                await self._check()
                self._is_lagging = not await self._catch_up(time.monotonic() + _MAX_WAIT_SECONDS)
            if self._is_lagging:
                self._tasks.run("index", self._finish())
            elif self._snapshot.in_memory >= _FLUSH_ROWS:
                self._build_soon()
            self._verify_soon()
        return self._snapshot.intact()

    async def whole(self) -> IndexSnapshot:
        """Return the committed state, however long catching up takes."""
        snapshot = await self.now()
        while self._is_lagging:
            await asyncio.sleep(_POLL_SECONDS)
            snapshot = await self.now()
        return snapshot

    async def forget(self) -> None:
        """Remove the files."""
        async with self._lock:
            if self._folder is not None:
                await SEARCH_THREADS.run(self._folder.clear)

    async def _check(self) -> None:
        """Load the segment files, at first and whenever they changed."""
        if self._folder is not None and not (self._is_loaded and self._folder.is_untouched(self._snapshot)):
            await self._load(self._folder)

    async def _load(self, folder: SegmentStore) -> None:
        known, self._is_loaded = self._snapshot, False
        self._generation, self._snapshot = 0, IndexSnapshot()
        try:
            loaded = await SEARCH_THREADS.run(folder.load, known)
        except Damaged as damage:
            await self._set_aside(folder, damage)
        else:
            if loaded is not None:
                await self._continue_from(loaded, folder)
        self._is_loaded = True

    async def _continue_from(self, loaded: LoadedSnapshot, folder: SegmentStore) -> None:
        snapshot, state = await self._apply_removals(loaded), await self._state()
        if loaded.can_catch_up(state):
            self._generation, self._snapshot, self._began = state.generation, snapshot, snapshot.number
        else:
            await SEARCH_THREADS.run(folder.drop, loaded.generation, snapshot.number)

    async def _set_aside(self, folder: SegmentStore, damage: Damaged) -> None:
        """Set damaged files aside; their content is rebuilt."""
        self._generation, self._snapshot = 0, IndexSnapshot()
        await self._report(str(damage), rows=False)
        await SEARCH_THREADS.run(folder.set_aside)

    async def _report(self, damage: str, *, rows: bool) -> None:
        _log.error(
            "index damaged",
            extra={"fields": {"tenant": self._name.tenant, "collection": self._name.collection, "what": damage}},
        )
        if self._alarm is not None:
            await attempt("index alarm", self._alarm(self._name.tenant, self._name.collection, rows=rows))

    async def _is_sound(self, state: CollectionState) -> bool:
        """Compare the replica with a state it has reached; if rows are lost, correct the state and report it."""
        if self._snapshot.number != state.number or self._checked == (state.generation, state.number):
            return True
        self._checked = (state.generation, state.number)
        is_lost = self._snapshot.live_rows != state.chunks or (not state.generation and await self._has_rows())
        if is_lost and await self._database.write(self._scope, self._repair):
            await self._report("rows in the database", rows=True)
            return False
        return True

    async def _has_rows(self) -> bool:
        """Return whether a collection that has no state has rows; those of a deleted domain are deleted later."""
        collection = self._name.collection
        return collection_domain(collection) is None and await self._database.read(
            self._scope, lambda tx: CollectionStore(tx).has_chunks(collection)
        )

    async def _repair(self, transaction: Transaction) -> bool:
        return await CollectionStore(transaction).repair(self._name.collection)

    async def _apply_removals(self, loaded: LoadedSnapshot) -> IndexSnapshot:
        """Apply removals between the oldest and the newest file."""
        snapshot, reached = loaded.snapshot, loaded.as_of
        while reached < snapshot.number:
            removals = await self._database.read(self._scope, partial(self._removals, reached), heavy=True)
            removed = [removal.removed for removal in removals]
            snapshot = await SEARCH_THREADS.run(snapshot.advanced_to, snapshot.number, [], removed)
            if len(removals) < _READ_BATCH_SIZE:
                break
            reached = removals[-1].number
        return snapshot

    async def _removals(self, after: int, transaction: Transaction) -> Sequence[Removal]:
        return await CollectionStore(transaction).removals_after(self._name.collection, after, _READ_BATCH_SIZE)

    async def _catch_up(self, deadline: float) -> bool:
        """Catch up with the committed state; False if the deadline passes first."""
        while True:
            state = await self._state()
            if not self._is_part_of(state):
                state = await self._restart()
            self.goal = state.number
            ahead = state.number - self._snapshot.number
            if ahead <= 0:
                if await self._is_sound(state):
                    return True
                continue
            step = await self._database.read(self._scope, self._read, heavy=ahead > _SMALL_BATCH)
            if step.pruned_up_to <= self._removals_seen:
                self._snapshot = await self._after(step)
                if not self._knows_damage and any(chunk.is_damaged for chunk in step.chunks):
                    self._knows_damage = True
                    await self._report("vectors in the database", rows=True)
            if time.monotonic() > deadline:
                return self._snapshot.number >= state.number

    @property
    def _removals_seen(self) -> int:
        """Return the number up to which all removals are applied."""
        return max(self._snapshot.number, self._began)

    def _is_part_of(self, state: CollectionState) -> bool:
        """Tell whether the retained changes lead from here to that state."""
        return (
            self._generation == state.generation
            and self._snapshot.number <= state.number
            and self._removals_seen >= state.pruned_up_to
        )

    async def _restart(self) -> CollectionState:
        if self._generation and self._folder is not None:
            # Another process may have rebuilt it already; otherwise the files are useless.
            self._snapshot = IndexSnapshot()
            await self._load(self._folder)
        state = await self._state()
        if not self._is_part_of(state):
            self._generation, self._snapshot, self._began = state.generation, IndexSnapshot(), state.number
        return state

    async def _state(self) -> CollectionState:
        return await self._database.read(self._scope, lambda tx: CollectionStore(tx).state(self._name.collection))

    async def _read(self, transaction: Transaction) -> _Step:
        store, (_, collection, model), reached = CollectionStore(transaction), self._name, self._snapshot.number
        chunks = list(await store.chunks_after(collection, reached, _READ_BATCH_SIZE, model))
        removals = await store.removals_after(collection, reached, _READ_BATCH_SIZE)
        returns = [] if model is None else await store.vector_updates_after(collection, model, reached, _SMALL_BATCH)
        ends = [chunks[-1].number] if len(chunks) == _READ_BATCH_SIZE else []
        ends += [removals[-1].number] if len(removals) == _READ_BATCH_SIZE else []
        ends += [returns[-1].number] if len(returns) == _SMALL_BATCH else []
        state = await store.state(collection)
        number = min(ends, default=state.number)
        known = {chunk.number: chunk for chunk in chunks if chunk.number <= number}
        for each in returns:
            if model is not None and self._began < each.number <= number:
                updated = await store.chunks_between(collection, each.first, min(each.last, number), model)
                known |= {chunk.number: chunk for chunk in updated}
        removed = [removal.removed for removal in removals if removal.number <= number]
        return _Step(number, [known[each] for each in sorted(known)], removed, state.pruned_up_to)

    async def _after(self, step: _Step) -> IndexSnapshot:
        work = partial(self._snapshot.advanced_to, step.number, step.chunks, step.removed)
        # Adding one chunk may merge it with thousands.
        return await SEARCH_THREADS.run(work) if step.chunks or len(step.removed) > _SMALL_BATCH else work()

    async def _finish(self) -> None:
        """Bulk load, flushing to files on the way, so that nothing is read twice."""
        async with self._lock:
            while self._tasks.is_open and not await self._catch_up(time.monotonic()):
                if self._snapshot.in_memory >= _BULK_FLUSH_ROWS and time.monotonic() >= self._retry_at:
                    await self._build()
                await self._check()
            self._is_lagging = False
        self._build_soon()

    def _verify_soon(self) -> None:
        if self._snapshot.files and not self._is_verifying and time.monotonic() >= self._verify_at:
            self._is_verifying = True
            self._tasks.run("index", self._verify())

    async def _verify(self) -> None:
        """Verify checksums of some blocks of one file, to find silent damage."""
        file = min(self._snapshot.files, key=lambda file: file.rounds, default=None)
        try:
            if file is not None:
                await SEARCH_THREADS.run(file.verify_some)
        except Damaged as damage:
            async with self._lock:
                if self._folder is not None and file in self._snapshot.files:
                    await self._set_aside(self._folder, damage)
        finally:
            self._verify_at = time.monotonic() + _VERIFY_SECONDS
            self._is_verifying = False

    def _build_soon(self) -> None:
        if self._folder is not None and not self._is_building and time.monotonic() >= self._retry_at:
            self._is_building = True
            self._tasks.run("index", self._build_in_background())

    async def _build_in_background(self) -> None:
        try:
            built = await self._built()
            async with self._lock:
                await self._adopt(built)
        finally:
            self._is_building = False

    async def _build(self) -> None:
        await self._adopt(await self._built())

    async def _built(self) -> _Built:
        generation, began, snapshot = self._generation, self._began, self._snapshot
        built = None
        try:
            if self._folder is not None:
                built = await self._tasks.write(partial(self._folder.build, generation, snapshot))
        except Damaged:
            # Loading detects damaged files and sets them aside.
            pass
        except OSError as error:
            # The rows stay in memory.
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            _log.warning("index cannot be written", extra={"fields": {"error": type(error).__name__}})
        return _Built(generation, began, built)

    async def _adopt(self, built: _Built) -> None:
        """Continue from the new files, unless the replica was rebuilt; later changes are read again."""
        folder, snapshot = self._folder, built.snapshot
        if folder is None:
            return
        if snapshot is None:
            if not await SEARCH_THREADS.run(folder.is_current, self._generation, self._snapshot):
                await self._load(folder)
        elif built.generation != self._generation:
            await SEARCH_THREADS.run(folder.drop, built.generation, snapshot.number)
        elif built.began == self._began:
            self._snapshot = snapshot


# Index replicas of this process, and the event for damaged files.

_MAX_BYTES_IN_MEMORY = 2**30
# Visibility of larger collections is computed in a thread.
_MAX_ROWS_ON_LOOP = 20_000
# Collections beyond this size get a vector index in the database (pgvector). Its existence is checked at this interval,
# sooner while it is missing.
_MIN_ROWS_FOR_VECTOR_INDEX = 10_000
_CHECK_SECONDS = 3_600.0


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
            actor, outbox = system_actor(tenant), Outbox(transaction, self._clock)
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
        jobs = JobStore(transaction)
        # What is being indexed again for another reason goes on.
        running = await jobs.progress(REINDEXING_JOB)
        known = (None if running is None else IndexCursor.of(running).reindex) or ReindexRange(0, 0)
        number = (await CollectionStore(transaction).state(collection)).number
        numbers = {SESSIONS: known.sessions, MEMORY: known.memory, WINDOWS: known.windows}
        numbers[collection] = max(numbers[collection], number)
        replaced = ReindexRange(numbers[SESSIONS], numbers[MEMORY], known.reembed, numbers[WINDOWS])
        await start_session_reindex(jobs, await EventStore(transaction).last_seq(), replaced)
        return
    domains = DomainStore(transaction)
    domain = await domains.find_locked(name)
    if domain is not None:
        is_reembedding = domain.reindex_after is not None and domain.reembed
        await domains.update(replace(domain, reindex_after="", reembed=is_reembedding))
        await outbox.publish(domain_event("domain.reindexing", domain, participant))
