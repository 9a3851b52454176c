"""Putting what is said in sessions, and what agents remember, in the collections where searches find it.

It follows the log of every tenant, in this process while no other follows the same, and rests at least as long as it
works, so that it never takes more than about half a core from those who call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.indexing.embeddings.model import TextRefused
from weft.capabilities.indexing.embeddings.model_selection import known_models_to_fill, suffices
from weft.capabilities.indexing.model_migration.migration import models_in_use
from weft.capabilities.search.session_indexing.cursor import FOLLOWING, REINDEXING, IndexCursor, go_back, is_still_at
from weft.capabilities.search.session_indexing.indexer import EVENTS_AT_ONCE, TEXTS_AT_ONCE, Indexer, Written
from weft.capabilities.search.session_indexing.item_text import chunks_of
from weft.jobs.backfill_vectors import ModelVectors
from weft.jobs.lease import Lease
from weft.jobs.periodic import attempt
from weft.kernel.clock import to_micros
from weft.kernel.errors import WeftError
from weft.kernel.jobs import Progress
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.embeddings import SqlTenantModelStore
from weft.storage.sql.events import SqlEventStore
from weft.storage.sql.jobs import SqlJobStore
from weft.storage.sql.session_index import events_pending, most_behind, tenants_behind, tenants_reindexing
from weft.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.indexing.collections.model import NewChunk
    from weft.capabilities.indexing.embeddings.model import Embeddings
    from weft.capabilities.search.session_indexing.cursor import IndexItem
    from weft.capabilities.search.session_indexing.indexer import IndexingRound, ItemChange
    from weft.kernel.clock import Clock
    from weft.kernel.metrics import JobMetrics
    from weft.storage.sql.database import Database, Transaction
    from weft.storage.sql.unit_of_work import Injector

_log = logging.getLogger("weft.upkeep")
# A process that does one thing and ends leaves this work to those that stay.
_FIRST_LOOK_SECONDS = 1.0
# What a missed wake would have told of, and what failed.
_LOOK_EVERY_SECONDS = 30.0
# While something is indexed anew, which goes on when time has passed.
_LOOK_SOON_SECONDS = 0.5
# What is said in quick succession is read and embedded together, and a key that is written over is put up once.
_GATHER_SECONDS = 1.0
# After so long it is the next tenant's turn.
_TURN_SECONDS = 5.0
# Whoever waits for something that is slow keeps only few others waiting.
_TENANTS_AT_ONCE = 3
# What goes wrong for no known reason may go well a while later, but must not keep what is behind it waiting for ever.
_PAUSE_SECONDS = 30.0
_MOST_TRIES = 3


class _Step(NamedTuple):
    """A round with where it was begun, and the models that what it brings needs vectors of."""

    begun: Progress
    found: IndexingRound
    models: tuple[str, ...]


class SessionIndexing:
    """Follows the logs of all tenants."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        injector: Injector,
        embeddings: Embeddings,
        metrics: JobMetrics,
        chunks_a_second: int = 0,
    ) -> None:
        self._database = database
        self._clock = clock
        self._embeddings = embeddings
        self._metrics = metrics
        # How many chunks of a tenant may be indexed anew in a second; no limit if 0.
        self._rate = chunks_a_second
        self._followers = SystemTransactions(database, injector, Indexer)
        self._vectors = ModelVectors()
        # Until when no more of a tenant is indexed anew.
        self._rests: dict[str, float] = {}
        # Until when a tenant is left alone for which something went wrong that nobody expected.
        self._pauses: dict[str, float] = {}
        # How often items were tried in vain that a tenant's work stands at, by tenant and job.
        self._tries: dict[tuple[str, str], Mapping[IndexItem, int]] = {}
        self._is_reindexing = False
        self._room = asyncio.Semaphore(_TENANTS_AT_ONCE)
        self._at_work = 0
        self._wake = asyncio.Event()
        # How long to rest after work, as a multiple of the time it took.
        self.rest = 1.0

    def note(self, tenants: set[str]) -> None:
        """Hear that there may be news of these tenants."""
        del tenants
        self._wake.set()

    async def run(self) -> None:
        """Follow every tenant's log, for as long as the process lives."""
        await asyncio.sleep(_FIRST_LOOK_SECONDS)
        while True:
            self._wake.clear()
            await attempt("following", self._look())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SOON_SECONDS if self._is_reindexing else _LOOK_EVERY_SECONDS):
                    await self._wake.wait()
            await asyncio.sleep(_GATHER_SECONDS)

    async def catch_up(self) -> None:
        """Follow until nothing is left, for whoever cannot wait for it."""
        while waiting := await self._waiting():
            for tenant in waiting:
                await self.follow(tenant)

    async def pending(self, transaction: Transaction) -> int:
        """Return how many events of the transaction's tenant were not looked at yet."""
        return await events_pending(transaction)

    async def _look(self) -> None:
        self._metrics.note_behind(await self._database.read(SYSTEM, most_behind))
        more = True
        while more:
            # Those that failed wait until the next look, or longer if nobody knows why.
            waiting = [each for each in await self._waiting() if not self._is_paused(each)]
            more = any(
                await asyncio.gather(*(attempt("following", self.follow(each), tenant=each) for each in waiting))
            )

    async def _waiting(self) -> Sequence[str]:
        """Return the tenants that there is something to do for now."""
        now = to_micros(self._clock.now())
        behind = await self._database.read(SYSTEM, lambda tx: tenants_behind(tx, now))
        reindexed = await self._database.read(SYSTEM, lambda tx: tenants_reindexing(tx, now))
        self._is_reindexing = bool(reindexed)
        return [*dict.fromkeys([*behind, *filter(self._has_rested, reindexed)])]

    def _has_rested(self, tenant: str) -> bool:
        return asyncio.get_running_loop().time() >= self._rests.get(tenant, 0.0)

    def _is_paused(self, tenant: str) -> bool:
        return asyncio.get_running_loop().time() < self._pauses.get(tenant, 0.0)

    async def follow(self, tenant: str) -> None:
        """Follow one tenant's log for a while, unless another process does."""
        async with self._room:
            try:
                await Lease(self._database, self._clock, tenant, FOLLOWING).do(self._follow)
            except WeftError:
                raise
            except Exception:
                self._pauses[tenant] = asyncio.get_running_loop().time() + _PAUSE_SECONDS
                raise

    async def _follow(self, lease: Lease) -> None:
        self._at_work += 1
        try:
            await self._take_turn(lease)
        finally:
            self._at_work -= 1

    async def _take_turn(self, lease: Lease) -> None:
        loop = asyncio.get_running_loop()
        enough = loop.time() + _TURN_SECONDS
        await self._begin(lease)
        more = True
        while more and loop.time() < enough:
            started = loop.time()
            # What is new never waits for what is old.
            more = await self._step(lease, FOLLOWING) or (
                self._has_rested(lease.tenant) and await self._step(lease, REINDEXING)
            )
            await self._rest(started)

    async def _rest(self, started: float) -> None:
        """Rest for as long as the work took: all tenants together take no more than one of them would."""
        worked = asyncio.get_running_loop().time() - started
        await asyncio.sleep(worked * self.rest * max(1, 2 * self._at_work - 1))

    async def _begin(self, lease: Lease) -> None:
        """Begin with a long log that nobody has followed yet at its end: what is said now is found before the rest."""
        if await lease.read(_long_log) is not None:
            await lease.write(self._begin_at_end)

    async def _begin_at_end(self, transaction: Transaction) -> None:
        last = await _long_log(transaction)
        if last is None:
            return
        jobs = SqlJobStore(transaction)
        await go_back(jobs, last)
        await jobs.save(FOLLOWING, IndexCursor(last).as_progress())

    async def _step(self, lease: Lease, job: str) -> bool:
        """Bring the next few items onto their collections; tell whether there is more to do now."""
        tenant = lease.tenant
        step = await lease.read(lambda tx: self._next(tx, job), heavy=True)
        if step is None:
            return False
        found = step.found
        async with lease.held():
            cut = await self._cut(tenant, job, found)
            written = await self._written(tenant, found, cut, step.models)
        if not await lease.write(lambda tx: self._put(tx, job, step, written)):
            return True
        self._tries.pop((tenant, job), None)
        self._metrics.count_followed(len(written))
        return found.more and (job == FOLLOWING or self._may_go_on(tenant, written))

    def _may_go_on(self, tenant: str, written: Sequence[Written]) -> bool:
        """Tell whether more may be indexed anew right now; if not, note when."""
        if not self._rate:
            return True
        chunks = sum(len(each.chunks) for each in written)
        self._rests[tenant] = asyncio.get_running_loop().time() + chunks / self._rate
        return not chunks

    async def _next(self, transaction: Transaction, job: str) -> _Step | None:
        progress = await SqlJobStore(transaction).standing(job)
        if progress is None and job == REINDEXING:
            return None
        begun = progress or Progress()
        said = await SqlTenantModelStore(transaction).listed()
        models = known_models_to_fill(said, self._embeddings.models())
        follower, position = self._followers.within(transaction), IndexCursor.of(begun)
        found = await (follower.look(position) if job == FOLLOWING else follower.look_back(position))
        return _Step(begun, found, models)

    async def _cut(self, tenant: str, job: str, found: IndexingRound) -> list[list[NewChunk]]:
        """Cut what is said in a round. What fails is tried again later; after so many times it is passed over."""
        # Cutting and counting is work for a thread: it may be a megabyte.
        cut = await asyncio.to_thread(lambda: [_chunks_or_error(change) for change in found.changes])
        tried = zip(found.changes, cut, strict=True)
        failed = {change.subject: some for change, some in tried if isinstance(some, Exception)}
        before = self._tries.get((tenant, job), {})
        tries = self._tries[tenant, job] = {subject: before.get(subject, 0) + 1 for subject in failed}
        for subject, error in failed.items():
            if tries[subject] < _MOST_TRIES:
                raise error
        self._pass_over(tenant, [*failed], "a text cannot be cut and is not searched")
        return [[] if isinstance(some, Exception) else some for some in cut]

    async def _written(
        self, tenant: str, found: IndexingRound, cut: Sequence[list[NewChunk]], models: Sequence[str]
    ) -> list[Written]:
        while True:
            try:
                return await self._with_vectors(tenant, found, cut, models)
            except TextRefused as refusal:
                cut = self._without_refused(tenant, found, cut, refusal)

    async def _with_vectors(
        self, tenant: str, found: IndexingRound, cut: Sequence[list[NewChunk]], models: Sequence[str]
    ) -> list[Written]:
        anew = found.reached.anew
        chunks = [chunk for some in cut for chunk in some]
        embed = partial(self._embedded, tenant, chunks, afresh=anew is not None and anew.afresh)
        vectors = {model: iter(made) for model, made in (await self._vectors.of(models, embed)).items()}
        return [
            Written(change, some, {model: [next(made) for _ in some] for model, made in vectors.items()})
            for change, some in zip(found.changes, cut, strict=True)
        ]

    def _without_refused(
        self, tenant: str, found: IndexingRound, cut: Sequence[list[NewChunk]], refusal: TextRefused
    ) -> list[list[NewChunk]]:
        """Pass over items with a text that is never embedded, for the sake of the rest."""
        is_refused = [any(chunk.embedded in refusal.texts for chunk in some) for some in cut]
        if not any(is_refused):
            raise refusal
        refused = [change.subject for change, is_one in zip(found.changes, is_refused, strict=True) if is_one]
        self._pass_over(tenant, refused, "a text is refused by the embedder and not searched")
        return [[] if is_one else some for some, is_one in zip(cut, is_refused, strict=True)]

    def _pass_over(self, tenant: str, subjects: Sequence[IndexItem], why: str) -> None:
        self._metrics.count_passed_over(len(subjects))
        for subject in subjects:
            _log.warning(why, extra={"fields": {"tenant": tenant, "source": subject.source, "place": subject.place}})

    async def _embedded(self, tenant: str, chunks: Sequence[NewChunk], model: str, *, afresh: bool) -> list[bytes]:
        loop = asyncio.get_running_loop()
        vectors: list[bytes] = []
        for start in range(0, len(chunks), TEXTS_AT_ONCE):
            started = loop.time()
            texts = [chunk.embedded for chunk in chunks[start : start + TEXTS_AT_ONCE]]
            vectors += await self._embeddings.of_passages(tenant, texts, model, afresh=afresh)
            if len(chunks) > TEXTS_AT_ONCE:
                await self._rest(started)
        return vectors

    async def _put(self, transaction: Transaction, job: str, step: _Step, written: Sequence[Written]) -> bool:
        """Write a round and how far it reaches, together.

        Not at all if another model came into use meanwhile, or if going back was begun anew.
        """
        jobs = SqlJobStore(transaction)
        if job == REINDEXING and not await is_still_at(jobs, step.begun):
            return False
        known, now = self._embeddings.models(), to_micros(self._clock.now())
        if written and not suffices(
            written[0].vectors, await models_in_use(SqlTenantModelStore(transaction), known, now)
        ):
            return False
        await self._followers.within(transaction).put(written)
        if job == REINDEXING and not step.found.more:
            await jobs.drop(job)
        else:
            await jobs.save(job, step.found.reached.as_progress())
        return True


async def _long_log(transaction: Transaction) -> int | None:
    """Return where a log ends that nobody has followed yet and that takes more than one step; None for any other."""
    standing = await SqlJobStore(transaction).standing(FOLLOWING)
    last = await SqlEventStore(transaction).last_seq()
    is_new = standing is None or not standing.cursor
    return last if is_new and last > EVENTS_AT_ONCE else None


def _chunks_or_error(change: ItemChange) -> list[NewChunk] | Exception:
    """Return the chunks of what an item says, or why there are none."""
    try:
        return [] if change.said is None else chunks_of(change.subject, change.said)
    except Exception as error:  # noqa: BLE001 - what becomes of it is decided for the round as a whole
        return error
