"""Vectors of everything that is searched: those that are made together with chunks, and those that chunks lack."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from weft.capabilities.indexing.embeddings.model import EmbedderUnavailable, TextRefused
from weft.capabilities.indexing.embeddings.model_selection import known_models_to_fill
from weft.capabilities.indexing.model_migration.migration import models_in_use
from weft.jobs.lease import Lease
from weft.jobs.periodic import attempt, every
from weft.kernel.clock import DAY_MICROS, to_micros
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.embeddings import SqlTenantModelStore
from weft.storage.sql.jobs import SqlJobStore, tenants_with_due

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weft.capabilities.indexing.embeddings.model import Embeddings
    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction

_WORK = "models.fill"
_LOOK_EVERY_SECONDS = 60.0
_EMBEDDED_AT_ONCE = 64
# Whoever is away is not waited for again and again.
_ASK_AGAIN_SECONDS = 300.0


class ModelVectors:
    """Makes the vectors of chunks, by every model they need one of.

    Without those of the model that serves, which comes first, nothing can be written. Those of a model that is being
    migrated to are left to the migration while that model is away.
    """

    def __init__(self) -> None:
        self._away: dict[str, float] = {}

    async def of(
        self, models: Sequence[str], embed: Callable[[str], Awaitable[list[bytes]]]
    ) -> dict[str, Sequence[bytes]]:
        serving, *others = models
        vectors: dict[str, Sequence[bytes]] = {serving: await embed(serving)}
        now = asyncio.get_running_loop().time
        for model in others:
            if now() < self._away.get(model, 0.0):
                continue
            try:
                vectors[model] = await embed(model)
            except EmbedderUnavailable:
                self._away[model] = now() + _ASK_AGAIN_SECONDS
        return vectors


class BackfillVectors:
    """Looks once a day whether a chunk has no vector of the model that serves, and makes those that are missing.

    No process that knows the model leaves any out; one with an older version of Weft, or none of its own, might have.
    """

    def __init__(self, database: Database, clock: Clock, embeddings: Embeddings) -> None:
        self._database = database
        self._clock = clock
        self._embeddings = embeddings
        # How long to rest after embedding, as a multiple of the time it took: others embed too.
        self.rest = 1.0

    async def run(self) -> None:
        await every(_LOOK_EVERY_SECONDS, "missing vectors", self.look)

    async def look(self) -> None:
        """Look at every tenant whose turn it is, unless another process does."""
        now = self._now()
        for tenant in await self._database.read(SYSTEM, lambda tx: tenants_with_due(tx, _WORK, now)):
            lease = Lease(self._database, self._clock, tenant, _WORK)
            await attempt("missing vectors", lease.do(self._fill_all), tenant=tenant)

    async def _fill_all(self, lease: Lease) -> None:
        said = await lease.read(lambda tx: SqlTenantModelStore(tx).listed())
        model, *_ = known_models_to_fill(said, self._embeddings.models())
        for collection in await lease.read(lambda tx: SqlCollectionStore(tx).names()):
            await self._fill(lease, collection, model)
        await lease.write(lambda tx: SqlJobStore(tx).finish(_WORK, self._now() + DAY_MICROS))

    async def _fill(self, lease: Lease, collection: str, model: str) -> None:
        loop, after = asyncio.get_running_loop(), 0
        while True:
            look = partial(_lacking, collection=collection, model=model, after=after)
            async with lease.held():
                chunks = await lease.read(look, heavy=True)
                if not chunks:
                    return
                started, after = loop.time(), max(chunks)
                try:
                    made = await self._embeddings.of_passages(lease.tenant, list(chunks.values()), model)
                except TextRefused:
                    # Nothing that could be made later either.
                    continue
            keep = partial(self._keep, collection=collection, model=model, vectors=dict(zip(chunks, made, strict=True)))
            await lease.write(keep)
            await asyncio.sleep((loop.time() - started) * self.rest)

    async def _keep(self, transaction: Transaction, collection: str, model: str, vectors: Mapping[int, bytes]) -> None:
        """Keep what was made, unless another model serves by now."""
        serving, *_ = await models_in_use(SqlTenantModelStore(transaction), self._embeddings.models(), self._now())
        if serving == model:
            await SqlCollectionStore(transaction).add_vectors(collection, model, vectors)

    def _now(self) -> int:
        return to_micros(self._clock.now())


async def _lacking(transaction: Transaction, collection: str, model: str, after: int) -> dict[int, str]:
    """Return the texts of the next chunks that have no vector, by their numbers."""
    chunks = await SqlCollectionStore(transaction).without_vector(collection, model, after, _EMBEDDED_AT_ONCE)
    return {chunk.number: chunk.embedded for chunk in chunks}
