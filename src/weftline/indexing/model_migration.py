"""Migration of a tenant to another embedding model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
from msgspec import structs

from weftline.indexing.collections import Chunk
from weftline.indexing.embeddings import Model, TenantModelStore, models_to_fill
from weftline.indexing.sql import CollectionStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import Conflict, NotFound
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import PERMISSION, Actor, Permission
from weftline.kernel.outbox import Outbox
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Hashable

    from weftline.kernel.transaction import Row, Transaction


# Canary queries: a growing share of a tenant's queries is answered by the new model before all of them are.
#
# Each such query is answered by both models, one after the other, until the step has enough of them; only figures are
# kept, never the query.

# Compared queries that end a step, and how long it waits for them.
STEP_QUERIES = 30
_STEP_MICROS = 3_600_000_000
# Compared queries after which a bad model is stopped, before its step ends.
_MIN_QUERIES = 10
# Tolerated share of queries that the new model could not answer.
_MAX_FAILURES = 0.1
_TOP_K = 10
_HOUR_MICROS = 3_600_000_000

MEANS = (
    "overlap",
    "results_before",
    "results_after",
    "confidence_before",
    "confidence_after",
    "ms_before",
    "ms_after",
)

Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class QuerySample(msgspec.Struct, frozen=True):
    """One query answered by both models. ``correlation`` is missing if they have fewer than two results in common."""

    overlap: float
    correlation: float | None
    results_before: float
    results_after: float
    confidence_before: float
    confidence_after: float
    ms_before: float
    ms_after: float


class QueryComparison(msgspec.Struct, frozen=True):
    """Means over the queries of a step that both models answered.

    Overlap and failures decide. Confidence does not: cosines of two models are not on the same scale.

    ``overlap``: see overlap(). ``rank_correlation``: Kendall's tau of the results in common, -1 to 1. ``failures``:
    queries that the new model could not answer, so that the old one did.
    """

    share: float
    started_at: int
    queries: int = 0
    failures: int = 0
    overlap: float = 0.0
    rank_correlation: float = 0.0
    correlated: int = 0
    results_before: float = 0.0
    results_after: float = 0.0
    confidence_before: float = 0.0
    confidence_after: float = 0.0
    ms_before: float = 0.0
    ms_after: float = 0.0

    def with_sample(self, sample: QuerySample) -> QueryComparison:
        """Return the means with one more query."""
        count = self.queries + 1
        means = {name: _mean(getattr(self, name), getattr(sample, name), count) for name in MEANS}
        if sample.correlation is not None:
            means["rank_correlation"] = _mean(self.rank_correlation, sample.correlation, self.correlated + 1)
        correlated = self.correlated + (sample.correlation is not None)
        return structs.replace(self, **means, queries=count, correlated=correlated)

    def problem(self, min_overlap: float) -> str | None:
        """Return why the new model is not good enough; None if it is, or if there are no queries."""
        asked = self.queries + self.failures
        if asked and self.failures / asked > _MAX_FAILURES:
            return f"The new model could not answer {self.failures} of {asked} queries."
        if self.queries and self.overlap < min_overlap:
            return f"The models agree on {self.overlap:.0%} of results, less than {min_overlap:.0%}."
        return None


class Canary(msgspec.Struct, frozen=True):
    """The shares of queries, step by step, and the comparison of each step so far; the last one is the current.

    The old vectors stay for ``keep_hours`` after the switch. ``ended_at``: when queries last used the new model, if
    the migration ended without it.
    """

    shares: tuple[float, ...]
    min_overlap: float
    keep_hours: int
    steps: tuple[QueryComparison, ...] = ()
    ended_at: int | None = None

    @property
    def current(self) -> QueryComparison | None:
        return self.steps[-1] if self.steps else None

    @property
    def is_last(self) -> bool:
        """Tell whether all queries follow after the current step."""
        return len(self.steps) >= len(self.shares)

    @property
    def keep_micros(self) -> int:
        return self.keep_hours * _HOUR_MICROS

    def next_step(self, now: int) -> Canary:
        """Return it with the next share of queries."""
        step = QueryComparison(self.shares[len(self.steps)], now)
        return structs.replace(self, steps=(*self.steps, step))

    def with_current(self, current: QueryComparison) -> Canary:
        return structs.replace(self, steps=(*self.steps[:-1], current))

    @property
    def problem(self) -> str | None:
        """Return why the current step fails; None if it does not, or has too few queries to tell before its end."""
        return None if self.current is None else self.current.problem(self.min_overlap)

    def is_due(self, now: int) -> bool:
        """Tell whether the current step has ended, or is failing already."""
        current = self.current
        if current is None:
            return True
        asked = current.queries + current.failures
        if asked >= STEP_QUERIES or now >= current.started_at + _STEP_MICROS:
            return True
        return asked >= _MIN_QUERIES and self.problem is not None


def overlap(before: Sequence[Hashable], after: Sequence[Hashable]) -> float:
    """Return the share of the shorter list's first results that both have; 1 if both are empty, 0 if only one is.

    How many results reach the minimum score depends on the model's scale of cosines.
    """
    one, other = set(before[:_TOP_K]), set(after[:_TOP_K])
    if not (one and other):
        return float(not (one or other))
    return len(one & other) / min(len(one), len(other))


def rank_correlation(before: Sequence[Hashable], after: Sequence[Hashable]) -> float | None:
    """Return Kendall's tau of the first results in common; None if there are fewer than two."""
    place = {each: at for at, each in enumerate(after[:_TOP_K])}
    places = [place[each] for each in before[:_TOP_K] if each in place]
    pairs = [(one, other) for at, one in enumerate(places) for other in places[at + 1 :]]
    if not pairs:
        return None
    return sum(1 if one < other else -1 for one, other in pairs) / len(pairs)


def _mean(mean: float, value: float, count: int) -> float:
    return round(mean + (value - mean) / count, 6)


# Model migration: the state machine by which a tenant switches to another embedding model.
#
# ``embedding``: every chunk gets a vector of the new model next to the old one. ``comparing``: both models answer the
# same probes. If the new model's recall is on par, it answers a growing share of queries (``canary``), which the old
# one answers too. If they compare well, all searches switch to it. The old vectors stay for a while, for a rollback,
# and are then deleted (``dropping``, then ``done``). Otherwise the migration is ``refused``.

MigrationState = Literal["embedding", "comparing", "canary", "dropping", "done", "refused", "cancelled", "rolled_back"]
CANCELLABLE: frozenset[MigrationState] = frozenset({"embedding", "comparing", "canary"})
_SWITCHED: frozenset[MigrationState] = frozenset({"dropping", "done"})

# Tolerated loss of recall: figures from a sample vary by about this much.
PARITY_SLACK = 0.02
# Searches that started with the old model may still be running.
_DROP_DELAY_MICROS = 30_000_000

ModelName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        description="Name of an embedding model, as shown by list_models.",
    ),
]


class ModelInUse(Conflict):
    """The tenant's searches already use this model."""

    code = "MODEL_IN_USE"
    hint = "Choose another model: `knowledge.list_models` lists those you may use."
    related = ("knowledge",)


class ModelMigrationInProgress(Conflict):
    """A model migration of the tenant is in progress, or its last one is still deleting vectors."""

    code = "MODEL_MIGRATION_IN_PROGRESS"
    hint = (
        "See its progress with `knowledge.show_model_migration`; cancel it with `knowledge.cancel_model_migration`, "
        "or wait until it has finished."
    )
    related = ("knowledge",)


class ModelMigrationNotFound(NotFound):
    """The tenant has no model migration, or none that is in progress."""

    code = "MODEL_MIGRATION_NOT_FOUND"
    hint = "Start one with `knowledge.start_model_migration`."
    related = ("knowledge",)


class ModelComparison(msgspec.Struct, frozen=True):
    """Recall@10 of both models on probes (sentences that must retrieve their own chunk).

    ``agreement`` is the mean overlap of the two top tens, over probes and recent user queries.
    """

    probes: int
    recall_before: float
    recall_after: float
    agreement: float

    @property
    def is_parity(self) -> bool:
        return self.recall_after >= self.recall_before - PARITY_SLACK


class ModelMigration(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's migration between two models. The cursor (``collection``, ``number``) is the last processed chunk.

    Not ``comparable`` if the old model was unavailable at the start: there is no baseline, so the new model takes over
    without a comparison.
    """

    from_model: str
    to_model: str
    state: MigrationState
    comparable: bool
    started_by: str
    started_at: int
    switched_at: int | None = None
    finished_at: int | None = None
    collection: str = ""
    number: int = 0
    embedded: int = 0
    comparison: ModelComparison | None = None
    problem: str | None = None
    canary: Canary | None = None

    @property
    def required_models(self) -> frozenset[str]:
        """Return the models that the next step needs."""
        if self.state == "embedding" or (self.state == "comparing" and not self.comparable):
            return frozenset({self.to_model})
        return frozenset({self.from_model, self.to_model}) if self.state == "comparing" else frozenset()

    @property
    def leftover(self) -> str | None:
        """Return the model whose vectors are to be deleted; None while both are needed."""
        if self.state in CANCELLABLE:
            return None
        return self.from_model if self.state in _SWITCHED else self.to_model

    def may_be_dropped(self, now: int) -> bool:
        """Tell whether no running search can still use the left-over vectors, and no rollback will need them."""
        if self.leftover is None:
            return False
        if self.state in _SWITCHED:
            kept = 0 if self.canary is None or not self.comparable else self.canary.keep_micros
            return now >= (self.switched_at or 0) + max(_DROP_DELAY_MICROS, kept)
        ended_at = None if self.canary is None else self.canary.ended_at
        return ended_at is None or now >= ended_at + _DROP_DELAY_MICROS

    def may_be_rolled_back(self, now: int) -> bool:
        """Tell whether searches can still return to the old model."""
        return self.state == "dropping" and self.comparable and not self.may_be_dropped(now)


# Evaluation of two embedding models on the same probes: recall@10 and agreement of the top tens.
#
# A probe is a sentence of a chunk; the chunk itself is the correct answer, so no labels are needed. Recent user
# queries are used for agreement only.

TOP_K = 10
_MAX_PROBES = 200
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_MIN_CHARACTERS = 16
_MAX_CHARACTERS = 200


class Probe(NamedTuple):
    """A query and the chunk that answers it; None for a user's query."""

    collection: str
    text: str
    number: int | None


class ProbeResults(NamedTuple):
    """The chunk numbers that both models rank highest for a probe."""

    probe: Probe
    before: Sequence[int]
    after: Sequence[int]


def probe_of(chunk: Chunk) -> Probe | None:
    """Return a probe for a chunk; None if it has no sentence that is long enough."""
    sentences = [part.strip()[:_MAX_CHARACTERS] for part in _SENTENCE_END.split(chunk.text)]
    candidates = [sentence for sentence in sentences if len(sentence) >= _MIN_CHARACTERS]
    if not candidates:
        return None
    # Deterministic for a chunk, but not always the first sentence.
    return Probe(chunk.collection, candidates[chunk.digest[0] % len(candidates)], chunk.number)


async def probes_in(collection: str, collections: CollectionStore, shares: int) -> list[Probe]:
    """Return probes for chunks spread evenly over a collection: its share of all probes."""
    count = max(1, _MAX_PROBES // shares)
    last = (await collections.state(collection)).number
    positions = sorted({last * each // count for each in range(count)})
    numbers = [await collections.chunks_after(collection, position, 1, None) for position in positions]
    chunks = await collections.find(collection, sorted({found[0].number for found in numbers if found}))
    return [probe for probe in map(probe_of, chunks) if probe is not None]


def compare(answers: Iterable[ProbeResults]) -> ModelComparison:
    """Compare two models; without probes both have recall 1."""
    answers = list(answers)
    probes = [each for each in answers if each.probe.number is not None]
    return ModelComparison(
        probes=len(probes),
        recall_before=_share(each.probe.number in each.before for each in probes),
        recall_after=_share(each.probe.number in each.after for each in probes),
        agreement=_mean_recall(_overlap(each) for each in answers),
    )


def _overlap(answers: ProbeResults) -> float:
    before = set(answers.before)
    return len(before & set(answers.after)) / len(before) if before else 1.0


def _share(found: Iterable[bool]) -> float:
    return _mean_recall(map(float, found))


def _mean_recall(values: Iterable[float]) -> float:
    values = list(values)
    return round(sum(values) / len(values), 4) if values else 1.0


# SQL store of model migrations.

_FIELDS = ModelMigration.__struct_fields__
_JSON_FIELDS = {"comparison": ModelComparison, "canary": Canary}
_MIGRATION = f"SELECT {', '.join(_FIELDS)} FROM model_migrations WHERE tenant = $1 "  # noqa: S608 - our own fields
_SAVE = f"""
INSERT INTO model_migrations (tenant, {", ".join(_FIELDS)})
VALUES ({", ".join(f"${place}" for place in range(1, len(_FIELDS) + 2))})
ON CONFLICT (tenant) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _FIELDS)}
"""  # noqa: S608 - likewise


class ModelMigrationStore(SqlStore):
    """The latest model migration of the transaction's tenant."""

    async def find(self) -> ModelMigration | None:
        return _migration(await self._tx.one(_MIGRATION, self._tenant))

    async def find_locked(self) -> ModelMigration | None:
        """Return it and lock its row."""
        return _migration(await self._tx.one(_MIGRATION + "{for_update}", self._tenant))

    async def save(self, migration: ModelMigration) -> None:
        values = msgspec.structs.asdict(migration) | {
            "comparable": int(migration.comparable),
            **{name: _encoded(getattr(migration, name)) for name in _JSON_FIELDS},
        }
        await self._tx.run(_SAVE, self._tenant, *(values[name] for name in _FIELDS))


async def migrating_tenants(transaction: Transaction) -> list[str]:
    """Return the tenants with an unfinished model migration."""
    rows = await transaction.all("SELECT tenant FROM model_migrations WHERE finished_at IS NULL ORDER BY tenant")
    return [row[0] for row in rows]


def _encoded(value: msgspec.Struct | None) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _migration(row: Row | None) -> ModelMigration | None:
    if row is None:
        return None
    values = dict(zip(_FIELDS, row, strict=True))
    for name, kind in _JSON_FIELDS.items():
        if values[name] is not None:
            values[name] = msgspec.json.decode(values[name], type=kind)
    return ModelMigration(**{**values, "comparable": bool(values["comparable"])})


# Steps of a model migration: each is one transaction, and all state is in the database.

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
