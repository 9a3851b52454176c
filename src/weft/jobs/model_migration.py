"""Moving tenants to other embedding models: this process's part of it, shared with all others through leases."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING

from weft.capabilities.indexing.model_migration.evaluation import TOP_K, Probe, ProbeResults, compare
from weft.capabilities.indexing.model_migration.migration import MigrationSteps
from weft.capabilities.search.index_view import CollectionQuery
from weft.jobs.lease import Lease
from weft.jobs.periodic import attempt
from weft.kernel.clock import to_micros
from weft.kernel.errors import WeftError
from weft.kernel.identity import system_actor
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.model_migrations import SqlModelMigrationStore, migrating_tenants
from weft.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.app.search.service import SearchIndexes
    from weft.capabilities.indexing.embeddings.model import Embeddings
    from weft.capabilities.indexing.model_migration.model import ModelComparison, ModelMigration
    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database
    from weft.storage.sql.unit_of_work import Injector

_WORK = "models.migrate"
_FIRST_LOOK_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 5.0
_QUESTIONS_REMEMBERED = 50


class _All:
    """Sees everything of a tenant: whoever compares models shows nobody what was found."""

    def matches(self, _patterns: Sequence[str]) -> bool:
        return True


class ModelMigrations:
    """Goes on with the migrations of every tenant, in this process, while no other does."""

    def __init__(
        self, database: Database, clock: Clock, injector: Injector, embeddings: Embeddings, collections: SearchIndexes
    ) -> None:
        self._database = database
        self._clock = clock
        self._embeddings = embeddings
        self._collections = collections
        self._migrations = SystemTransactions(database, injector, MigrationSteps)
        # What was asked lately, in memory alone: asked again of both models, and forgotten.
        self._asked: defaultdict[str, deque[Probe]] = defaultdict(lambda: deque(maxlen=_QUESTIONS_REMEMBERED))
        self._moving: frozenset[str] = frozenset()
        # How long to rest after embedding, as a multiple of the time it took: others embed too.
        self.rest = 1.0

    def note_question(self, tenant: str, collection: str, text: str) -> None:
        """Remember what was asked, if it will help to compare."""
        if tenant in self._moving:
            self._asked[tenant].append(Probe(collection, text, None))

    async def run(self) -> None:
        """Go on with what is under way, for as long as the process lives."""
        await asyncio.sleep(_FIRST_LOOK_SECONDS)
        while True:
            await attempt("model migrations", self.look())
            await asyncio.sleep(_LOOK_EVERY_SECONDS)

    async def look(self) -> None:
        """Go on with every migration that there is something left to do for."""
        tenants = await self._database.read(SYSTEM, migrating_tenants)
        self._moving = frozenset(tenants)
        for tenant in self._asked.keys() - self._moving:
            del self._asked[tenant]
        await asyncio.gather(*(attempt("model migrations", self.go_on(tenant), tenant=tenant) for tenant in tenants))

    async def go_on(self, tenant: str) -> None:
        """Go on with a tenant's migration as far as it can go now, unless another process does."""
        await Lease(self._database, self._clock, tenant, _WORK).do(self._go_on)

    async def _go_on(self, lease: Lease) -> None:
        try:
            while await self._step(lease):
                pass
        except WeftError as error:
            problem = error.message
            await lease.write(self._migrations.doing(lambda migrations: migrations.record_problem(problem)))

    async def _step(self, lease: Lease) -> bool:
        """Do what is next; tell whether there is something left to be done now."""
        migration = await lease.read(lambda tx: SqlModelMigrationStore(tx).find())
        known = {model.name for model in self._embeddings.models()}
        # A process that does not know both models leaves the work to those that do.
        if migration is None or migration.finished_at is not None or not migration.required_models <= known:
            return False
        if migration.state == "embedding":
            await self._embed(lease)
            return True
        if migration.state == "comparing":
            await self._compare(lease, migration)
            return True
        if migration.may_be_dropped(to_micros(self._clock.now())):
            await self._drop(lease, migration)
        return False

    async def _embed(self, lease: Lease) -> None:
        started = asyncio.get_running_loop().time()
        batch = await lease.read(self._migrations.doing(MigrationSteps.next_batch))
        if batch is None:
            await self._finish_embedding(lease)
            return
        texts = [chunk.embedded for chunk in batch.chunks]
        async with lease.held():
            vectors = await self._embeddings.of_passages(lease.tenant, texts, batch.migration.to_model)
        numbered = dict(zip((chunk.number for chunk in batch.chunks), vectors, strict=True))
        await lease.write(self._migrations.doing(partial(MigrationSteps.store_vectors, batch=batch, vectors=numbered)))
        await asyncio.sleep((asyncio.get_running_loop().time() - started) * self.rest)

    async def _finish_embedding(self, lease: Lease) -> None:
        async with lease.held():
            whole = await lease.read(self._migrations.doing(MigrationSteps.complete_up_to), heavy=True)
        await lease.write(self._migrations.doing(partial(MigrationSteps.finish_embedding, complete_up_to=whole)))

    async def _compare(self, lease: Lease, migration: ModelMigration) -> None:
        async with lease.held():
            for model in migration.required_models:
                await self._collections.prepare(lease.tenant, await self._names(lease), model)
            comparison = await self._comparison(lease, migration) if migration.comparable else None
            whole = await lease.read(self._migrations.doing(MigrationSteps.complete_up_to), heavy=True)
        await lease.write(
            self._migrations.doing(
                partial(MigrationSteps.finish_comparison, comparison=comparison, complete_up_to=whole)
            )
        )

    async def _comparison(self, lease: Lease, migration: ModelMigration) -> ModelComparison:
        probes = await lease.read(self._migrations.doing(MigrationSteps.probes))
        answers = []
        for probe in [*probes, *self._asked[lease.tenant]]:
            models = (migration.from_model, migration.to_model)
            before, after = await asyncio.gather(*(self._nearest(lease.tenant, probe, model) for model in models))
            answers.append(ProbeResults(probe, before, after))
        return compare(answers)

    async def _nearest(self, tenant: str, probe: Probe, model: str) -> Sequence[int]:
        vector = await self._embeddings.of_query(system_actor(tenant), probe.text, model)
        view = await self._collections.open(tenant, CollectionQuery(probe.collection), _All(), model)
        near = await view.nearest(vector, TOP_K)
        numbers: Sequence[int] = view.columns(near.rows).number.tolist()
        return numbers

    async def _drop(self, lease: Lease, migration: ModelMigration) -> None:
        async with lease.held():
            await self._collections.forget(lease.tenant, await self._names(lease), migration.leftover or "")
        while await lease.write(self._migrations.doing(MigrationSteps.delete_leftover_batch)):
            pass

    async def _names(self, lease: Lease) -> Sequence[str]:
        return await lease.read(lambda tx: SqlCollectionStore(tx).names())
