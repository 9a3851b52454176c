"""Steps of a model migration: each is one transaction, and all state is in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import structs

from weftline.indexing.collections.model import Chunk
from weftline.indexing.collections.sql import CollectionStore
from weftline.indexing.embeddings.model import Model
from weftline.indexing.embeddings.model_selection import models_to_fill
from weftline.indexing.embeddings.sql import TenantModelStore
from weftline.indexing.model_migration.canary import Canary, QuerySample
from weftline.indexing.model_migration.evaluation import Probe, probes_in
from weftline.indexing.model_migration.model import (
    CANCELLABLE,
    MigrationState,
    ModelComparison,
    ModelInUse,
    ModelMigration,
    ModelMigrationInProgress,
    ModelMigrationNotFound,
)
from weftline.indexing.model_migration.sql import ModelMigrationStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.events import EventType, NewEvent, Outbox
from weftline.kernel.identity import PERMISSION, Actor, Permission

_ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)
_EMBED_BATCH = 64
_DELETE_BATCH = 2_000
_MAX_PROBLEM_CHARACTERS = 500


class ChunkBatch(NamedTuple):
    """Chunks of a collection without a vector of the new model."""

    migration: ModelMigration
    collection: str
    chunks: Sequence[Chunk]


class MigrationSteps(msgspec.Struct, frozen=True):
    """Steps of a model migration, within one transaction."""

    actor: Actor
    migrations: ModelMigrationStore
    models: TenantModelStore
    collections: CollectionStore
    outbox: Outbox
    clock: Clock

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def start(self, model: Model, known: Sequence[Model], canary: Canary) -> ModelMigration:
        """Start a migration: from now on every new chunk gets vectors of both models."""
        last = await self.migrations.find_locked()
        if last is not None and last.finished_at is None:
            raise ModelMigrationInProgress(to_model=last.to_model, state=last.state)
        serving, *_ = models_to_fill(await self.models.listed(), known)
        if serving == model.name:
            raise ModelInUse(model=model.name)
        # Writing both rows waits for transactions that add chunks under the previous models.
        await self.models.set(serving, "serving", self.now)
        await self.models.set(model.name, "building", self.now)
        migration = ModelMigration(
            from_model=serving,
            to_model=model.name,
            state="embedding",
            comparable=any(each.name == serving for each in known),
            started_by=self.actor.participant,
            started_at=self.now,
            canary=canary,
        )
        return await self._save(migration, "model_migration.started")

    async def cancel(self) -> ModelMigration:
        """Keep the old model, or return to it after the switch; vectors of the new one are deleted."""
        migration = await self.migrations.find_locked()
        if migration is not None and migration.may_be_rolled_back(self.now):
            return await self._roll_back(migration)
        if migration is None or migration.state not in CANCELLABLE:
            raise ModelMigrationNotFound
        await self._retire(migration.to_model)
        return await self._save(self._ended(migration, "cancelled"), "model_migration.cancelled")

    async def _roll_back(self, migration: ModelMigration) -> ModelMigration:
        await self.models.set(migration.from_model, "serving", self.now)
        await self._retire(migration.to_model)
        return await self._save(self._ended(migration, "rolled_back"), "model_migration.rolled_back")

    async def next_batch(self) -> ChunkBatch | None:
        """Return the next chunks to embed; None when every collection is done."""
        migration = await self.migrations.find()
        if migration is None or migration.state != "embedding":
            return None
        for collection in await self.collections.names():
            if collection < migration.collection:
                continue
            after = migration.number if collection == migration.collection else 0
            chunks = await self.collections.without_vector(collection, migration.to_model, after, _EMBED_BATCH)
            if chunks:
                return ChunkBatch(migration, collection, chunks)
        return None

    async def store_vectors(self, batch: ChunkBatch, vectors: Mapping[int, bytes]) -> None:
        """Store the vectors of a batch, unless the migration has changed since."""
        migration = await self._locked_in_state("embedding")
        if migration is None or migration != batch.migration:
            return
        added = await self.collections.add_vectors(batch.collection, migration.to_model, vectors)
        last, embedded = batch.chunks[-1].number, migration.embedded + added
        await self.migrations.save(
            structs.replace(migration, collection=batch.collection, number=last, embedded=embedded, problem=None)
        )

    async def complete_up_to(self) -> Mapping[str, int]:
        """Return the number up to which every chunk of the collection has a vector of the new model. Slow."""
        migration = await self.migrations.find()
        if migration is None:
            return {}
        reached = {}
        for collection in await self.collections.names():
            missing = await self.collections.without_vector(collection, migration.to_model, 0, 1)
            reached[collection] = (
                missing[0].number - 1 if missing else (await self.collections.state(collection)).number
            )
        return reached

    async def finish_embedding(self, complete_up_to: Mapping[str, int]) -> None:
        """Go on to comparing if every chunk has a vector, else start another pass."""
        migration = await self._locked_in_state("embedding")
        if migration is None:
            return
        restarted = structs.replace(migration, collection="", number=0)
        if await self._is_complete(migration, complete_up_to):
            await self._save(structs.replace(restarted, state="comparing"), "model_migration.comparing")
        else:
            await self.migrations.save(restarted)

    async def probes(self) -> list[Probe]:
        """Return probes for every collection; deterministic for the same chunks."""
        names = await self.collections.names()
        return [probe for collection in names for probe in await probes_in(collection, self.collections, len(names))]

    async def chunks(self) -> int:
        """Return how many chunks there are."""
        return await self.collections.count_chunks()

    async def finish_comparison(self, comparison: ModelComparison | None, complete_up_to: Mapping[str, int]) -> None:
        """At parity begin with a share of the queries, or with all if there is nothing to compare; else refuse.

        Chunks added meanwhile without a vector of the new model are embedded first; then the models are compared again.
        """
        migration = await self._locked_in_state("comparing")
        if migration is None:
            return
        # Writing the unchanged row locks out transactions that add chunks.
        await self.models.set(migration.to_model, "building", self.now)
        if not await self._is_complete(migration, complete_up_to):
            await self.migrations.save(structs.replace(migration, state="embedding", problem=None))
            return
        compared = structs.replace(migration, comparison=comparison, problem=None)
        if comparison is not None and not comparison.is_parity:
            await self._refuse(compared)
        elif comparison is not None and compared.canary is not None and not compared.canary.is_last:
            await self._next_share(compared, compared.canary)
        else:
            await self._switch(compared)

    async def record_sample(self, sample: QuerySample | None) -> None:
        """Add a query that both models answered to the current step; None: the new model could not answer it."""
        migration = await self._locked_in_state("canary")
        canary = None if migration is None else migration.canary
        if migration is None or canary is None or canary.current is None or canary.is_due(self.now):
            return
        current = canary.current
        if sample is None:
            current = structs.replace(current, failures=current.failures + 1)
        else:
            current = current.with_sample(sample)
        await self.migrations.save(structs.replace(migration, canary=canary.with_current(current)))

    async def finish_share(self, complete_up_to: Mapping[str, int]) -> None:
        """End a step of queries: go on with the next share or with all queries, or refuse if the models differ."""
        migration = await self._locked_in_state("canary")
        canary = None if migration is None else migration.canary
        if migration is None or canary is None or not canary.is_due(self.now):
            return
        if canary.problem is not None:
            await self._refuse(structs.replace(migration, problem=canary.problem))
        elif not canary.is_last:
            await self._next_share(migration, canary)
        else:
            # Writing the unchanged row locks out transactions that add chunks.
            await self.models.set(migration.to_model, "building", self.now)
            if await self._is_complete(migration, complete_up_to):
                await self._switch(migration)
            else:
                await self.migrations.save(structs.replace(migration, state="embedding", collection="", number=0))

    async def _next_share(self, migration: ModelMigration, canary: Canary) -> None:
        further = canary.next_step(self.now)
        share = 0 if further.current is None else further.current.share
        await self.models.set(migration.to_model, "building", self.now, share)
        await self._save(structs.replace(migration, state="canary", canary=further), "model_migration.canary")

    async def _switch(self, migration: ModelMigration) -> None:
        """Answer all queries with the new model. New chunks still get vectors of the old one, for a rollback."""
        await self.models.set(migration.to_model, "serving", self.now)
        if migration.comparable and migration.canary is not None and migration.canary.keep_hours:
            await self.models.set(migration.from_model, "kept", self.now)
        else:
            await self._retire(migration.from_model)
        switched = structs.replace(migration, state="dropping", switched_at=self.now)
        await self._save(switched, "model_migration.switched")

    async def _refuse(self, migration: ModelMigration) -> None:
        await self._retire(migration.to_model)
        await self._save(self._ended(migration, "refused"), "model_migration.refused")

    def _ended(self, migration: ModelMigration, state: MigrationState) -> ModelMigration:
        """Return a migration that ended without the new model; queries that began with it may still be running."""
        canary = migration.canary
        if canary is not None and canary.steps:
            canary = structs.replace(canary, ended_at=self.now)
        return structs.replace(migration, state=state, canary=canary)

    async def delete_leftover_batch(self) -> bool:
        """Delete a batch of left-over vectors; return whether there may be more."""
        migration = await self.migrations.find_locked()
        if migration is None or migration.leftover is None or migration.finished_at is not None:
            return False
        if any(each.model == migration.leftover and each.role == "kept" for each in await self.models.listed()):
            # From now on new chunks get no vectors of it.
            await self._retire(migration.leftover)
            return True
        for collection in await self.collections.names():
            if await self.collections.drop_vectors(collection, migration.leftover, _DELETE_BATCH):
                return True
        finished = structs.replace(migration, finished_at=self.now)
        if migration.state == "dropping":
            await self._save(structs.replace(finished, state="done"), "model_migration.done")
        else:
            await self.migrations.save(finished)
        return False

    async def record_problem(self, problem: str) -> None:
        """Record why the migration is stalled."""
        migration = await self.migrations.find_locked()
        if migration is not None and migration.finished_at is None:
            await self.migrations.save(structs.replace(migration, problem=problem[:_MAX_PROBLEM_CHARACTERS]))

    async def _is_complete(self, migration: ModelMigration, up_to: Mapping[str, int]) -> bool:
        """Tell whether every chunk after these numbers has a vector of the new model."""
        for collection in await self.collections.names():
            if await self.collections.without_vector(collection, migration.to_model, up_to.get(collection, 0), 1):
                return False
        return True

    async def _retire(self, model: str) -> None:
        """Stop using a model. If the tenant's models are restricted, it stays an allowed one."""
        if any(each.role == "allowed" for each in await self.models.listed()):
            await self.models.set(model, "allowed", self.now)
        else:
            await self.models.remove(model)

    async def _locked_in_state(self, state: str) -> ModelMigration | None:
        migration = await self.migrations.find_locked()
        return migration if migration is not None and migration.state == state else None

    async def _save(self, migration: ModelMigration, event_type: EventType) -> ModelMigration:
        await self.migrations.save(migration)
        await self.outbox.publish(
            NewEvent(
                type=event_type,
                session_id=None,
                subject=migration.to_model,
                actor=self.actor.participant,
                readable_by=_ADMINS,
                data={"from_model": migration.from_model, "state": migration.state, **_figures(migration)},
            )
        )
        return migration


async def models_in_use(store: TenantModelStore, known: Sequence[Model], now: int) -> tuple[str, ...]:
    """Return the models that a new chunk needs vectors of, locked until the transaction ends.

    The serving model is stored with the first chunk, so that a change of the default does not affect the tenant.
    """
    listed = await store.held()
    if not any(each.role == "serving" for each in listed):
        await store.set(models_to_fill(listed, known)[0], "serving", now)
        # A migration may have started meanwhile; from now on it waits for this row.
        listed = await store.held()
    return models_to_fill(listed, known)


def _figures(migration: ModelMigration) -> dict[str, object]:
    current = None if migration.canary is None else migration.canary.current
    return {
        **({} if migration.comparison is None else structs.asdict(migration.comparison)),
        **({} if current is None else {"share": current.share}),
    }
