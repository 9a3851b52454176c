"""Incremental indexing of sessions and memories: reads each tenant's event log and updates outdated index entries.

Words first: a new item is found by its words at once, and by its meaning when ``session_vectors`` has added a vector.
It pauses at least as long as it works, so that it uses no more than about half a core.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.indexing.embeddings import (
    TenantModelStore,
    TextRefused,
    has_required_models,
    is_semantic,
    known_models_to_fill,
)
from weftline.indexing.model_migration import models_in_use
from weftline.jobs.scheduler import Work
from weftline.jobs.vectors import ModelVectors
from weftline.kernel.errors import WeftlineError
from weftline.kernel.job_store import JobStore, Progress
from weftline.kernel.thread_pools import SHORT_THREADS
from weftline.search.persistent_memory import text_of_value
from weftline.search.session_cursor import (
    INDEXING_JOB,
    REINDEXING_JOB,
    IndexCursor,
    VectorBacklog,
    is_reindex_unchanged,
    start_session_reindex,
)
from weftline.search.session_indexer import (
    EVENT_BATCH_SIZE,
    TEXT_BATCH_SIZE,
    Indexer,
    PreparedChange,
)
from weftline.search.session_item_text import chunks_of
from weftline.sessions.events.sql import EventStore
from weftline.storage.sql.database import SYSTEM
from weftline.storage.sql.session_index import events_pending, largest_backlog, tenants_reindexing, tenants_with_backlog
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weftline.history.object_storage import Staging
    from weftline.indexing.collections import NewChunk
    from weftline.indexing.embeddings import Embeddings
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.ports import JobMetrics
    from weftline.kernel.transaction import Transaction
    from weftline.search.session_cursor import IndexItem
    from weftline.search.session_indexer import IndexingRound, ItemChange
    from weftline.search.session_item_text import ItemText
    from weftline.storage.sql.unit_of_work import Injector

INDEX = "search.index_sessions"
# Tenants indexed at the same time: one with a slow embedder delays only a few others.
CONCURRENCY = 3
# Changes in quick succession are read and embedded together, and a key that is overwritten is indexed once.
EVENT_DELAY_SECONDS = 1.0
_POLL_SECONDS = 30.0
# While a tenant is reindexed, which is paced.
_POLL_SOON_SECONDS = 0.5
# A pause ends early if a search waits.
_REST_SLICE_SECONDS = 0.02
# Then it is the next tenant's turn.
_TURN_SECONDS = 5.0
# An item that cannot be chunked is retried, then skipped, so that it does not block those after it.
_MAX_TRIES = 3
_log = logging.getLogger("weftline.jobs")


class _Awaited(NamedTuple):
    """Events that a search waits for, and the future that is done when they are indexed."""

    seqs: frozenset[int]
    indexed: asyncio.Future[None]


class _Step(NamedTuple):
    """A round of changes, the progress it started from, and the models its chunks need vectors of.

    ``awaited`` are the waits that it ends.
    """

    started: Progress
    found: IndexingRound
    models: tuple[str, ...]
    semantic: bool
    awaited: Sequence[_Awaited] = ()

    @property
    def is_words_first(self) -> bool:
        """Tell whether vectors may follow later, if at all.

        Not of a reindex, whose items are found by meaning all the time, and not while the tenant is migrated to another
        model, which ends when every chunk has a vector of it.
        """
        return not self.semantic or (self.found.reached.reindex is None and len(self.models) == 1)


class SessionIndexing:
    """Incremental indexer of sessions and memories of all tenants, driven by their event logs."""

    def __init__(
        self,
        runner: LeaseRunner,
        injector: Injector,
        embeddings: Embeddings,
        metrics: JobMetrics,
        objects: Staging,
        chunks_per_second: int = 0,
        on_unembedded: Callable[[], None] = lambda: None,
    ) -> None:
        self._runner = runner
        self._embeddings = embeddings
        self._metrics = metrics
        self._objects = objects
        # Limit of reindexed chunks of a tenant; none if 0.
        self._rate = chunks_per_second
        # Called after words were written whose vectors are missing.
        self._on_unembedded = on_unembedded
        self._indexers = SystemTransactions(runner.database, injector, Indexer)
        self._vectors = ModelVectors()
        # When reindexing of a tenant continues.
        self._resume_at: dict[str, float] = {}
        # Failed tries of the items at the cursor, by tenant and job.
        self._tries: dict[tuple[str, str], Mapping[IndexItem, int]] = {}
        self._running = 0
        # Events that searches wait for, by tenant: those of each search, and the future that ends its wait.
        self._awaited: dict[str, list[_Awaited]] = {}
        self.poll_seconds = _POLL_SECONDS

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants with unindexed events, and those that are reindexed."""
        database, now = self._runner.database, self._runner.now
        self._metrics.set_index_lag(await database.read(SYSTEM, largest_backlog))
        with_backlog = await database.read(SYSTEM, lambda tx: tenants_with_backlog(tx, now))
        reindexed = await database.read(SYSTEM, lambda tx: tenants_reindexing(tx, now))
        self.poll_seconds = _POLL_SOON_SECONDS if reindexed else _POLL_SECONDS
        waits = {tenant: self._seconds_to_resume(tenant) for tenant in reindexed}
        return [Work(tenant, wait=wait) for tenant, wait in {**waits, **dict.fromkeys(with_backlog, 0.0)}.items()]

    async def run(self, tenant: str) -> bool:
        """Index a tenant's changes for a while; return whether another process did not."""
        return await self._runner.run(tenant, INDEXING_JOB, self._take_turn) is not None

    def index_next(self, tenant: str, seqs: Sequence[int]) -> asyncio.Future[None]:
        """Index these events of a tenant before older ones; the future is done when they are indexed here.

        Many events are left to their turn.
        """
        awaited = _Awaited(frozenset(seqs), asyncio.get_running_loop().create_future())
        if len(seqs) <= TEXT_BATCH_SIZE:
            self._awaited.setdefault(tenant, []).append(awaited)
            awaited.indexed.add_done_callback(lambda _: self._forget(tenant, awaited))
        return awaited.indexed

    def _forget(self, tenant: str, awaited: _Awaited) -> None:
        rest = [each for each in self._awaited.get(tenant, ()) if each is not awaited]
        if rest:
            self._awaited[tenant] = rest
        else:
            self._awaited.pop(tenant, None)

    async def pending(self, transaction: Transaction) -> int:
        """Return the number of events of the transaction's tenant that are not indexed yet."""
        return await events_pending(transaction)

    def _seconds_to_resume(self, tenant: str) -> float:
        return max(0.0, self._resume_at.get(tenant, 0.0) - asyncio.get_running_loop().time())

    async def _take_turn(self, lease: Lease) -> bool:
        self._running += 1
        try:
            return await self._steps(lease)
        finally:
            self._running -= 1

    async def _steps(self, lease: Lease) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TURN_SECONDS
        await self._begin(lease)
        more = True
        while more and loop.time() < deadline:
            started = loop.time()
            # New changes never wait for reindexing.
            more = await self._step(lease, INDEXING_JOB) or (
                not self._seconds_to_resume(lease.tenant) and await self._step(lease, REINDEXING_JOB)
            )
            await self._rest(lease, started)
        return more

    async def _rest(self, lease: Lease, started: float) -> None:
        """Pause so that all tenants together use no more of a core than one would."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (loop.time() - started) * self._runner.rest * max(1, 2 * self._running - 1)
        while (left := end - loop.time()) > 0 and lease.tenant not in self._awaited and not lease.is_stopping:
            await lease.pause(min(left, _REST_SLICE_SECONDS))

    async def _begin(self, lease: Lease) -> None:
        """Start at the end of a long log that was never indexed: new changes are found before old ones."""
        if await lease.read(_long_log) is not None:
            await lease.write(self._begin_at_end)

    async def _begin_at_end(self, transaction: Transaction) -> None:
        last = await _long_log(transaction)
        if last is None:
            return
        jobs = JobStore(transaction)
        await start_session_reindex(jobs, last)
        await jobs.save(INDEXING_JOB, IndexCursor(last).as_progress())

    async def _step(self, lease: Lease, job: str) -> bool:
        """Index the next few items; return whether there is more to do now."""
        tenant = lease.tenant
        step = await lease.read(lambda tx: self._next(tx, job), heavy=True)
        if step is None:
            return False
        found = step.found
        async with lease.renewed():
            chunked = await self._chunk_items(tenant, job, found)
            written = await self._written(lease, step, chunked)
        if not await lease.write(lambda tx: self._put(tx, job, step, written)):
            return True
        if step.is_words_first and written:
            self._on_unembedded()
        self._tries.pop((tenant, job), None)
        for awaited in step.awaited:
            if not awaited.indexed.done():
                awaited.indexed.set_result(None)
        self._metrics.count_indexed_items(len(written))
        return found.more and (job == INDEXING_JOB or self._may_continue(tenant, written))

    def _may_continue(self, tenant: str, written: Sequence[PreparedChange]) -> bool:
        """Return whether reindexing may continue at once; if not, note when."""
        if not self._rate:
            return True
        chunks = sum(len(each.chunks) for each in written)
        self._resume_at[tenant] = asyncio.get_running_loop().time() + chunks / self._rate
        return not chunks

    async def _next(self, transaction: Transaction, job: str) -> _Step | None:
        progress = await JobStore(transaction).progress(job)
        if progress is None and job == REINDEXING_JOB:
            return None
        started = progress or Progress()
        store = TenantModelStore(transaction)
        models = known_models_to_fill(await store.listed(), self._embeddings.models())
        indexer, cursor = self._indexers.within(transaction), IndexCursor.of(started)
        semantic = await is_semantic(store, self._embeddings)
        if job == REINDEXING_JOB:
            return _Step(started, await indexer.changes_before(cursor), models, semantic)
        awaited = tuple(self._awaited.get(transaction.tenant, ()))
        if awaited:
            first = frozenset[int]().union(*(each.seqs for each in awaited))
            found = await indexer.changes_of(sorted(first), cursor)
            return _Step(started, found._replace(more=True), models, semantic, () if found.more else awaited)
        return _Step(started, await indexer.changes_after(cursor), models, semantic)

    async def _chunk_items(self, tenant: str, job: str, found: IndexingRound) -> list[list[NewChunk]]:
        """Chunk the items of a round. A failing item is retried a few times, then skipped."""
        texts = [await self._text_or_error(tenant, change) for change in found.changes]
        given = list(zip(found.changes, texts, strict=True))
        # In a thread: it may be a megabyte of text.
        chunked = await SHORT_THREADS.run(lambda: [_chunks_or_error(change, text) for change, text in given])
        tried = zip(found.changes, chunked, strict=True)
        failed = {change.item: item_chunks for change, item_chunks in tried if isinstance(item_chunks, Exception)}
        before = self._tries.get((tenant, job), {})
        tries = self._tries[tenant, job] = {item: before.get(item, 0) + 1 for item in failed}
        for item, error in failed.items():
            if tries[item] < _MAX_TRIES:
                raise error
        self._skip(tenant, [*failed], "a text cannot be read or chunked and is not searched")
        return [[] if isinstance(item_chunks, Exception) else item_chunks for item_chunks in chunked]

    async def _text_or_error(self, tenant: str, change: ItemChange) -> ItemText | Exception | None:
        """Return the text of an item, fetched if it is in object storage, or the error of fetching it."""
        text = change.text
        if text is None or text.pointer is None:
            return text
        try:
            content = await self._objects.fetch(tenant, text.pointer)
        except WeftlineError as error:
            return error
        return structs.replace(text, text=text_of_value(content, text.media_type) or text.heading)

    async def _written(self, lease: Lease, step: _Step, chunked: Sequence[list[NewChunk]]) -> list[PreparedChange]:
        if step.is_words_first:
            return [PreparedChange(*each, {}) for each in zip(step.found.changes, chunked, strict=True)]
        while True:
            try:
                return await self._with_vectors(lease, step.found, chunked, step.models)
            except TextRefused as refusal:
                chunked = self._without_refused(lease.tenant, step.found, chunked, refusal)

    async def _with_vectors(
        self, lease: Lease, found: IndexingRound, chunked: Sequence[list[NewChunk]], models: Sequence[str]
    ) -> list[PreparedChange]:
        reindex = found.reached.reindex
        chunks = [chunk for item_chunks in chunked for chunk in item_chunks if chunk.semantic]
        embed = partial(self._embedded, lease, chunks, reembed=reindex is not None and reindex.reembed)
        vectors = {model: iter(made) for model, made in (await self._vectors.compute(models, embed)).items()}
        return [
            PreparedChange(
                change,
                item_chunks,
                {
                    model: [next(made) if chunk.semantic else None for chunk in item_chunks]
                    for model, made in vectors.items()
                },
            )
            for change, item_chunks in zip(found.changes, chunked, strict=True)
        ]

    def _without_refused(
        self, tenant: str, found: IndexingRound, chunked: Sequence[list[NewChunk]], refusal: TextRefused
    ) -> list[list[NewChunk]]:
        """Skip items with a text that the embedder refuses."""
        is_refused = [any(chunk.embedded in refusal.texts for chunk in item_chunks) for item_chunks in chunked]
        if not any(is_refused):
            raise refusal
        refused = [change.item for change, is_one in zip(found.changes, is_refused, strict=True) if is_one]
        self._skip(tenant, refused, "a text is refused by the embedder and not searched")
        return [[] if is_one else item_chunks for item_chunks, is_one in zip(chunked, is_refused, strict=True)]

    def _skip(self, tenant: str, items: Sequence[IndexItem], why: str) -> None:
        self._metrics.count_skipped_items(len(items))
        for item in items:
            _log.warning(why, extra={"fields": {"tenant": tenant, "source": item.source, "place": item.place}})

    async def _embedded(self, lease: Lease, chunks: Sequence[NewChunk], model: str, *, reembed: bool) -> list[bytes]:
        loop = asyncio.get_running_loop()
        vectors: list[bytes] = []
        for start in range(0, len(chunks), TEXT_BATCH_SIZE):
            started = loop.time()
            batch = chunks[start : start + TEXT_BATCH_SIZE]
            texts, digests = [chunk.embedded for chunk in batch], [chunk.digest for chunk in batch]
            vectors += await self._embeddings.of_passages(lease.tenant, texts, model, digests=digests, reembed=reembed)
            if len(chunks) > TEXT_BATCH_SIZE:
                await self._rest(lease, started)
        return vectors

    async def _put(self, transaction: Transaction, job: str, step: _Step, written: Sequence[PreparedChange]) -> bool:
        """Write a round and its cursor in one transaction.

        False, and nothing is written, if another model came into use meanwhile or reindexing was restarted.
        """
        jobs = JobStore(transaction)
        if job == REINDEXING_JOB and not await is_reindex_unchanged(jobs, step.started):
            return False
        if written and not await self._has_models(transaction, step, written):
            return False
        # Locked before the collections, as by the job that embeds.
        backlog = await VectorBacklog.held(jobs) if step.is_words_first and written else None
        added = await self._indexers.within(transaction).put(written, step.models[0])
        if backlog is not None:
            await backlog.extend(jobs, added.first, added.own)
        if job == REINDEXING_JOB and not step.found.more:
            await jobs.drop(job)
        else:
            await jobs.save(job, step.found.reached.as_progress())
        return True

    async def _has_models(self, transaction: Transaction, step: _Step, written: Sequence[PreparedChange]) -> bool:
        """Tell whether the chunks have vectors of the models in use, or may get them later."""
        known, now = self._embeddings.models(), self._runner.now
        needed = await models_in_use(TenantModelStore(transaction), known, now)
        return needed == step.models if step.is_words_first else has_required_models(written[0].vectors, needed)


async def _long_log(transaction: Transaction) -> int | None:
    """Return the end of a log that was never indexed and takes more than one step; None for any other."""
    progress = await JobStore(transaction).progress(INDEXING_JOB)
    last = await EventStore(transaction).last_seq()
    is_new = progress is None or not progress.cursor
    return last if is_new and last > EVENT_BATCH_SIZE else None


def _chunks_or_error(change: ItemChange, text: ItemText | Exception | None) -> list[NewChunk] | Exception:
    """Return the chunks of an item, or the error of reading or chunking it."""
    if isinstance(text, Exception):
        return text
    try:
        return [] if text is None else chunks_of(change.item, text)
    except Exception as error:  # noqa: BLE001 - handled for the round as a whole
        return error
