"""Vectors of new items and of indexed chunks, and their daily backfill."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.embeddings import (
    EmbedderUnavailable,
    TenantModelStore,
    TextRefused,
    is_semantic,
    known_models_to_fill,
)
from weftline.indexing.model_migration import models_in_use
from weftline.indexing.sql import CollectionStore
from weftline.jobs.scheduler import Work
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.job_store import JobStore
from weftline.search.session_cursor import EMBEDDING_JOB, VectorBacklog
from weftline.storage.sql.database import SYSTEM
from weftline.storage.sql.session_index import tenants_to_embed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weftline.indexing.collections import Chunk
    from weftline.indexing.embeddings import Embeddings
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.ports import JobMetrics
    from weftline.kernel.transaction import Transaction


# Vectors of indexed chunks: those computed with the chunks, and a daily backfill of missing ones.

BACKFILL = "embeddings.backfill"
_BATCH = 64
# An embedder that is unavailable is not tried again for this long.
_RETRY_SECONDS = 300.0


class ModelVectors:
    """Computes the vectors of chunks for every model a tenant needs; none if it is not searched by meaning.

    The first model serves searches: without its vectors nothing can be written. The vectors of a model that is being
    migrated to are left to the migration while that model is unavailable.
    """

    def __init__(self) -> None:
        self._retry_at: dict[str, float] = {}

    async def compute(
        self, models: Sequence[str], embed: Callable[[str], Awaitable[list[bytes]]]
    ) -> dict[str, Sequence[bytes]]:
        if not models:
            return {}
        serving, *others = models
        vectors: dict[str, Sequence[bytes]] = {serving: await embed(serving)}
        now = asyncio.get_running_loop().time
        for model in others:
            if now() < self._retry_at.get(model, 0.0):
                continue
            try:
                vectors[model] = await embed(model)
            except EmbedderUnavailable:
                self._retry_at[model] = now() + _RETRY_SECONDS
        return vectors


class VectorBackfill:
    """Computes the vectors that chunks lack of the serving model, once a day.

    A process that knows the model leaves none out; one of an older version, or without an embedder, may have.
    """

    def __init__(self, runner: LeaseRunner, embeddings: Embeddings) -> None:
        self._runner = runner
        self._embeddings = embeddings

    async def run(self, tenant: str) -> None:
        await self._runner.run(tenant, BACKFILL, self._fill_all, only_if_due=True)

    async def _fill_all(self, lease: Lease) -> None:
        if await lease.read(lambda tx: is_semantic(TenantModelStore(tx), self._embeddings)):
            listed = await lease.read(lambda tx: TenantModelStore(tx).listed())
            model, *_ = known_models_to_fill(listed, self._embeddings.models())
            for collection in await lease.read(lambda tx: CollectionStore(tx).names()):
                await self._fill(lease, collection, model)
        await lease.write(lambda tx: JobStore(tx).finish(BACKFILL, self._runner.now + DAY_MICROS))

    async def _fill(self, lease: Lease, collection: str, model: str) -> None:
        loop, after = asyncio.get_running_loop(), 0
        while True:
            look = partial(_without_vector, collection=collection, model=model, after=after)
            async with lease.renewed():
                chunks = await lease.read(look, heavy=True)
                if not chunks:
                    return
                started, after = loop.time(), max(chunk.number for chunk in chunks)
                texts, digests = [chunk.embedded for chunk in chunks], [chunk.digest for chunk in chunks]
                try:
                    vectors = await self._embeddings.of_passages(lease.tenant, texts, model, digests=digests)
                except TextRefused:
                    # It would be refused later as well.
                    continue
            numbered = dict(zip((chunk.number for chunk in chunks), vectors, strict=True))
            await lease.write(partial(self._add, collection=collection, model=model, vectors=numbered))
            await lease.rest(started)

    async def _add(self, transaction: Transaction, collection: str, model: str, vectors: Mapping[int, bytes]) -> None:
        """Add vectors, unless another model serves by now."""
        models = TenantModelStore(transaction)
        serving, *_ = await models_in_use(models, self._embeddings.models(), self._runner.now)
        if serving == model:
            await CollectionStore(transaction).add_vectors(collection, model, vectors)


async def _without_vector(transaction: Transaction, collection: str, model: str, after: int) -> Sequence[Chunk]:
    """Return the next chunks without a vector."""
    return await CollectionStore(transaction).without_vector(collection, model, after, _BATCH)


# Vectors of new items: embeds what session indexing has made searchable by words, in batches.
#
# What is superseded or deleted before its turn has no chunk any more and is never embedded. Texts that a tenant has
# already are not embedded again. It pauses at least as long as it works, so that it uses no more than about half a
# core.

EMBED = "search.embed_sessions"
# Tenants whose items are embedded at the same time: one with a slow embedder delays only a few others.
CONCURRENCY = 3
# Chunks embedded together; a process that stops loses at most this work.
_BATCH_SIZE = 64
# Then it is the next tenant's turn.
_TURN_SECONDS = 5.0
_log = logging.getLogger("weftline.jobs")


class _Batch(NamedTuple):
    """The next chunks of a collection that lack a vector of the model that serves searches.

    ``is_first``: no earlier chunk lacks one.
    """

    collection: str
    chunks: Sequence[Chunk]
    model: str
    is_first: bool


class SessionVectors:
    """Adds the vectors of new items of all tenants."""

    def __init__(self, runner: LeaseRunner, embeddings: Embeddings, metrics: JobMetrics) -> None:
        self._runner = runner
        self._embeddings = embeddings
        self._metrics = metrics
        self._running = 0
        # Chunks that searches wait for, by tenant: the last of each collection.
        self._awaited: dict[str, dict[str, int]] = {}

    def embed_next(self, tenant: str, chunks: Mapping[str, int]) -> None:
        """Embed these chunks of a tenant before older ones: of each collection the one with this number."""
        self._awaited.setdefault(tenant, {}).update(chunks)

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants with items that are found by words only so far, and searched by meaning."""
        if self._embeddings.off_reason():
            return []
        tenants = await self._runner.database.read(SYSTEM, lambda tx: tenants_to_embed(tx, self._runner.now))
        return [Work(tenant) for tenant in tenants]

    async def run(self, tenant: str) -> bool:
        """Embed items of a tenant for a while; return whether there may be more to do."""
        return bool(await self._runner.run(tenant, EMBEDDING_JOB, self._take_turn))

    async def _take_turn(self, lease: Lease) -> bool:
        loop = asyncio.get_running_loop()
        deadline, more = loop.time() + _TURN_SECONDS, True
        self._running += 1
        try:
            while more and loop.time() < deadline:
                started = loop.time()
                more = await self._step(lease)
                # All tenants together use no more of a core than one would.
                await lease.pause((loop.time() - started) * self._runner.rest * max(1, 2 * self._running - 1))
        finally:
            self._running -= 1
        return more

    async def _step(self, lease: Lease) -> bool:
        batch = await lease.read(self._next)
        if batch is None:
            return False
        async with lease.renewed():
            vectors = await self._vectors_of(lease.tenant, batch)
        return await lease.write(lambda tx: self._add(tx, batch, vectors))

    async def _next(self, transaction: Transaction) -> _Batch | None:
        backlog = VectorBacklog.of(await JobStore(transaction).progress(EMBEDDING_JOB))
        if backlog.next is None:
            return None
        collection, first = backlog.next
        start = first
        for awaited, number in self._awaited.pop(transaction.tenant, {}).items():
            if awaited in backlog.first:
                collection, first = awaited, backlog.first[awaited]
                start = max(first, number - _BATCH_SIZE + 1)
        listed = await TenantModelStore(transaction).listed()
        model, *_ = known_models_to_fill(listed, self._embeddings.models())
        store = CollectionStore(transaction)
        chunks = await store.without_vector(collection, model, start - 1, _BATCH_SIZE)
        return _Batch(collection, chunks, model, start == first)

    async def _vectors_of(self, tenant: str, batch: _Batch) -> dict[int, bytes]:
        """Return vectors by chunk number, without texts that the embedder refuses: these are found by words only."""
        chunks = list(batch.chunks)
        while chunks:
            texts, digests = [chunk.embedded for chunk in chunks], [chunk.digest for chunk in chunks]
            try:
                vectors = await self._embeddings.of_passages(tenant, texts, batch.model, digests=digests)
            except TextRefused as refusal:
                refused = [chunk for chunk in chunks if chunk.embedded in refusal.texts]
                if not refused:
                    raise
                self._skip(tenant, refused)
                chunks = [chunk for chunk in chunks if chunk.embedded not in refusal.texts]
            else:
                return dict(zip((chunk.number for chunk in chunks), vectors, strict=True))
        return {}

    def _skip(self, tenant: str, chunks: Sequence[Chunk]) -> None:
        self._metrics.count_skipped_items(len({chunk.item for chunk in chunks}))
        for chunk in chunks:
            fields = {"tenant": tenant, "source": chunk.source, "place": chunk.place}
            _log.warning("a text is refused by the embedder and found by its words only", extra={"fields": fields})

    async def _add(self, transaction: Transaction, batch: _Batch, vectors: Mapping[int, bytes]) -> bool:
        """Add vectors and advance in one transaction, unless another model serves by now; return whether more wait."""
        jobs, collections = JobStore(transaction), CollectionStore(transaction)
        backlog = await VectorBacklog.held(jobs)
        models = TenantModelStore(transaction)
        serving, *_ = await models_in_use(models, self._embeddings.models(), self._runner.now)
        if serving != batch.model:
            return True
        # Locked, so that no chunk is added between the check for more and the commit.
        await collections.lock(batch.collection)
        await collections.add_vectors(batch.collection, batch.model, vectors)
        before = backlog.first.get(batch.collection, 1) - 1
        last = batch.chunks[-1].number if batch.chunks else before
        missing = await collections.without_vector(batch.collection, batch.model, last if batch.is_first else before, 1)
        await backlog.advance(jobs, batch.collection, last, missing[0].number if missing else None)
        return bool(missing) or len(backlog.first) > 1
