"""Migrations to other embedding models: embed every chunk again, compare both models, switch, drop old vectors."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from weftline.indexing.model_migration import (
    TOP_K,
    MigrationSteps,
    ModelMigrationStore,
    Probe,
    ProbeResults,
    compare,
    migrating_tenants,
)
from weftline.indexing.sql import CollectionStore
from weftline.jobs.scheduler import Work
from weftline.kernel.errors import WeftlineError
from weftline.kernel.identity import system_actor
from weftline.search.model import CollectionQuery, Views
from weftline.storage.sql.database import SYSTEM
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from weftline.indexing.embeddings import Embeddings
    from weftline.indexing.model_migration import ModelComparison, ModelMigration, QuerySample
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.storage.sql.unit_of_work import Injector

    # Runs work that nobody awaits; the text says what it is.
    RunLater = Callable[[str, Coroutine[Any, Any, object]], None]

MIGRATE = "embeddings.migrate"
_MAX_PROBES = 50
# Queries compared at once, over all tenants; one for each tenant. Others are not compared.
_MAX_COMPARED = 4


class ModelIndexes(Views, Protocol):
    """Search indexes of collections, by model."""

    async def prepare(self, tenant: str, collections: Iterable[str], model: str) -> None: ...

    async def forget(self, tenant: str, collections: Iterable[str], model: str) -> None: ...


class _Everyone:
    """Sees everything of a tenant: results of a comparison are shown to nobody."""

    def matches(self, _patterns: Sequence[str]) -> bool:
        return True


class ModelMigrations:
    """Continues the model migrations of all tenants."""

    def __init__(
        self,
        runner: LeaseRunner,
        injector: Injector,
        embeddings: Embeddings,
        indexes: ModelIndexes,
        run_later: RunLater,
    ) -> None:
        self._runner = runner
        self._run_later = run_later
        self._comparing: set[str] = set()
        self._embeddings = embeddings
        self._indexes = indexes
        self._steps = SystemTransactions(runner.database, injector, MigrationSteps)
        # Recent queries of tenants that migrate, in memory only: both models answer them for the comparison.
        self._queries: defaultdict[str, deque[Probe]] = defaultdict(lambda: deque(maxlen=_MAX_PROBES))
        self._migrating: frozenset[str] = frozenset()

    def record_query(self, tenant: str, collection: str, text: str) -> None:
        """Remember a query if the tenant migrates."""
        if tenant in self._migrating:
            self._queries[tenant].append(Probe(collection, text, None))

    def compare_later(self, tenant: str, work: Callable[[], Coroutine[Any, Any, QuerySample | None]]) -> None:
        """Compare a query in the background and store the figures, unless enough are being compared."""
        self._start(tenant, lambda: self._compare_query(tenant, work))

    def count_failure(self, tenant: str) -> None:
        """Count a query that the new model could not answer."""
        self._start(tenant, lambda: self._record(tenant, None))

    def _start(self, tenant: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if tenant in self._comparing or len(self._comparing) >= _MAX_COMPARED:
            return

        async def run() -> None:
            try:
                await work()
            finally:
                self._comparing.discard(tenant)

        self._comparing.add(tenant)
        self._run_later("model comparison", run())

    async def _compare_query(self, tenant: str, work: Callable[[], Coroutine[Any, Any, QuerySample | None]]) -> None:
        sample = await work()
        if sample is not None:
            await self._record(tenant, sample)

    async def _record(self, tenant: str, sample: QuerySample | None) -> None:
        await self._steps.write(tenant, lambda steps: steps.record_sample(sample))

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants that migrate."""
        tenants = await self._runner.database.read(SYSTEM, migrating_tenants)
        self._migrating = frozenset(tenants)
        for tenant in self._queries.keys() - self._migrating:
            del self._queries[tenant]
        return [Work(tenant) for tenant in tenants]

    async def run(self, tenant: str) -> None:
        """Continue a tenant's migration as far as it can go now."""
        await self._runner.run(tenant, MIGRATE, self._migrate)

    async def _migrate(self, lease: Lease) -> None:
        try:
            while await self._step(lease):
                pass
        except WeftlineError as error:
            problem = error.message
            await lease.write(self._steps.doing(lambda steps: steps.record_problem(problem)))

    async def _step(self, lease: Lease) -> bool:
        """Do the next step; return whether another can follow at once."""
        migration = await lease.read(lambda tx: ModelMigrationStore(tx).find())
        known = {model.name for model in self._embeddings.models()}
        # A process without both models leaves the work to those that have them.
        if migration is None or migration.finished_at is not None or not migration.required_models <= known:
            return False
        if migration.state == "embedding":
            await self._embed(lease)
            return True
        if migration.state == "comparing":
            await self._compare(lease, migration)
            return True
        if migration.state == "canary":
            return await self._end_share(lease, migration)
        if migration.may_be_dropped(self._runner.now):
            await self._drop(lease, migration)
        return False

    async def _embed(self, lease: Lease) -> None:
        started = asyncio.get_running_loop().time()
        batch = await lease.read(self._steps.doing(MigrationSteps.next_batch))
        if batch is None:
            await self._finish_embedding(lease)
            return
        texts, digests = [chunk.embedded for chunk in batch.chunks], [chunk.digest for chunk in batch.chunks]
        async with lease.renewed():
            model = batch.migration.to_model
            vectors = await self._embeddings.of_passages(lease.tenant, texts, model, digests=digests)
        numbered = dict(zip((chunk.number for chunk in batch.chunks), vectors, strict=True))
        await lease.write(self._steps.doing(partial(MigrationSteps.store_vectors, batch=batch, vectors=numbered)))
        await lease.rest(started)

    async def _finish_embedding(self, lease: Lease) -> None:
        async with lease.renewed():
            whole = await lease.read(self._steps.doing(MigrationSteps.complete_up_to), heavy=True)
        await lease.write(self._steps.doing(partial(MigrationSteps.finish_embedding, complete_up_to=whole)))

    async def _compare(self, lease: Lease, migration: ModelMigration) -> None:
        async with lease.renewed():
            for model in migration.required_models:
                await self._indexes.prepare(lease.tenant, await self._names(lease), model)
            comparison = await self._comparison(lease, migration) if migration.comparable else None
            whole = await lease.read(self._steps.doing(MigrationSteps.complete_up_to), heavy=True)
        await lease.write(
            self._steps.doing(partial(MigrationSteps.finish_comparison, comparison=comparison, complete_up_to=whole))
        )

    async def _end_share(self, lease: Lease, migration: ModelMigration) -> bool:
        """End the current share of queries if it is due; return whether it was."""
        canary = migration.canary
        if canary is None or not canary.is_due(self._runner.now):
            return False
        async with lease.renewed():
            last = canary.is_last and canary.problem is None
            whole = await lease.read(self._steps.doing(MigrationSteps.complete_up_to), heavy=True) if last else {}
        await lease.write(self._steps.doing(partial(MigrationSteps.finish_share, complete_up_to=whole)))
        return True

    async def _comparison(self, lease: Lease, migration: ModelMigration) -> ModelComparison:
        probes = await lease.read(self._steps.doing(MigrationSteps.probes))
        answers = []
        for probe in [*probes, *self._queries[lease.tenant]]:
            models = (migration.from_model, migration.to_model)
            before, after = await asyncio.gather(*(self._nearest(lease.tenant, probe, model) for model in models))
            answers.append(ProbeResults(probe, before, after))
        return compare(answers)

    async def _nearest(self, tenant: str, probe: Probe, model: str) -> Sequence[int]:
        vector = await self._embeddings.of_query(system_actor(tenant), probe.text, model)
        view = await self._indexes.open(tenant, CollectionQuery(probe.collection), _Everyone(), model)
        near = await view.nearest(vector, TOP_K)
        numbers: Sequence[int] = view.columns(near.rows).number.tolist()
        return numbers

    async def _drop(self, lease: Lease, migration: ModelMigration) -> None:
        async with lease.renewed():
            await self._indexes.forget(lease.tenant, await self._names(lease), migration.leftover or "")
        while await lease.write(self._steps.doing(MigrationSteps.delete_leftover_batch)):
            pass

    async def _names(self, lease: Lease) -> Sequence[str]:
        return await lease.read(lambda tx: CollectionStore(tx).names())
