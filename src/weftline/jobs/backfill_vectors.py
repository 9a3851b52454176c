"""Vectors of indexed chunks: those computed with the chunks, and a daily backfill of missing ones."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from weftline.indexing.collections.sql import CollectionStore
from weftline.indexing.embeddings.model import EmbedderUnavailable, TextRefused
from weftline.indexing.embeddings.model_selection import is_semantic, known_models_to_fill
from weftline.indexing.embeddings.sql import TenantModelStore
from weftline.indexing.model_migration.migration import models_in_use
from weftline.kernel.clock import DAY_MICROS
from weftline.storage.sql.jobs import SqlJobStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weftline.indexing.collections.model import Chunk
    from weftline.indexing.embeddings.model import Embeddings
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.kernel.transaction import Transaction

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
        await lease.write(lambda tx: SqlJobStore(tx).finish(BACKFILL, self._runner.now + DAY_MICROS))

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
