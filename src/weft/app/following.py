"""Putting what is said in sessions, and what agents remember, on the shelves where searches find it.

It follows the log of every tenant, in this process while no other follows the same, and rests at least as long as it
works, so that it never takes more than about half a core from those who call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from weft.app.leases import Lease, LeaseLost
from weft.app.needs import Call
from weft.app.system import system_actor
from weft.app.upkeep import attempt
from weft.capabilities.embedding.choosing import models_to_fill
from weft.capabilities.embedding.model import TextRefused
from weft.capabilities.following.contents import chunks_of
from weft.capabilities.following.following import EVENTS_AT_ONCE, TEXTS_AT_ONCE, Follower, Written
from weft.capabilities.following.model import FOLLOWING, REINDEXING, Position, go_back
from weft.capabilities.models.moving import models_in_use
from weft.kernel.clock import to_micros
from weft.kernel.errors import WeftError
from weft.storage.sql.database import SYSTEM, Scope
from weft.storage.sql.embeddings import SqlTenantModelStore
from weft.storage.sql.events import SqlEventStore
from weft.storage.sql.following import events_pending, most_behind, tenants_behind, tenants_reindexing
from weft.storage.sql.jobs import SqlJobStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.app.metrics import Metrics
    from weft.app.needs import Resolver, Source
    from weft.capabilities.embedding.model import Embeddings
    from weft.capabilities.following.following import Change, Round
    from weft.capabilities.shelves.model import NewChunk
    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction

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


class Following:
    """Follows the logs of all tenants."""

    def __init__(
        self, database: Database, clock: Clock, embeddings: Embeddings, metrics: Metrics, chunks_a_second: int = 0
    ) -> None:
        self._database = database
        self._clock = clock
        self._embeddings = embeddings
        self._metrics = metrics
        # How many chunks of a tenant may be indexed anew in a second; no limit if 0.
        self._rate = chunks_a_second
        self._follower: Source | None = None
        # Until when no more of a tenant is indexed anew.
        self._rests: dict[str, float] = {}
        self._is_reindexing = False
        self._room = asyncio.Semaphore(_TENANTS_AT_ONCE)
        self._at_work = 0
        self._wake = asyncio.Event()
        # How long to rest after work, as a multiple of the time it took.
        self.rest = 1.0

    def use(self, resolver: Resolver) -> None:
        self._follower = resolver.source(Follower)

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
            # Those that failed wait until the next look.
            waiting = await self._waiting()
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

    async def follow(self, tenant: str) -> None:
        """Follow one tenant's log for a while, unless another process does."""
        lease = Lease(self._database, self._clock, tenant, FOLLOWING)
        async with self._room:
            if not await lease.take():
                return
            self._at_work += 1
            try:
                await self._follow(lease)
            except LeaseLost:
                return
            finally:
                self._at_work -= 1
                with contextlib.suppress(WeftError):
                    await lease.release()

    async def _follow(self, lease: Lease) -> None:
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
        under_way = await jobs.standing(REINDEXING)
        anew = None if under_way is None else Position.of(under_way).anew
        await go_back(jobs, last, to_micros(self._clock.now()), anew)
        await jobs.save(FOLLOWING, Position(last).as_progress())

    async def _step(self, lease: Lease, job: str) -> bool:
        """Bring the next few items onto their shelves; tell whether there is more to do now."""
        tenant = lease.tenant
        found, models = await self._database.read(Scope(tenant), lambda tx: self._next(tx, job), heavy=True)
        if found is None:
            return False
        async with lease.held():
            written = await self._written(tenant, found, models)
        if await lease.write(lambda tx: self._put(tx, job, found, written, models)):
            self._metrics.count_followed(len(written))
        return found.more and (job == FOLLOWING or self._may_go_on(tenant, written))

    def _may_go_on(self, tenant: str, written: Sequence[Written]) -> bool:
        """Tell whether more may be indexed anew right now; if not, note when."""
        if not self._rate:
            return True
        chunks = sum(len(each.chunks) for each in written)
        self._rests[tenant] = asyncio.get_running_loop().time() + chunks / self._rate
        return not chunks

    async def _next(self, transaction: Transaction, job: str) -> tuple[Round | None, tuple[str, ...]]:
        progress = await SqlJobStore(transaction).standing(job)
        said = await SqlTenantModelStore(transaction).listed()
        models = models_to_fill(said, self._embeddings.models())
        if progress is None and job == REINDEXING:
            return None, models
        position = Position() if progress is None else Position.of(progress)
        follower = self._opened(transaction.tenant, transaction)
        return await (follower.look(position) if job == FOLLOWING else follower.look_back(position)), models

    async def _written(self, tenant: str, found: Round, models: Sequence[str]) -> list[Written]:
        # Cutting and counting is work for a thread: it may be a megabyte.
        cut = await asyncio.to_thread(lambda: [_cut(change) for change in found.changes])
        while True:
            try:
                return await self._with_vectors(tenant, found, cut, models)
            except TextRefused as refusal:
                cut = self._without_refused(tenant, found, cut, refusal)

    async def _with_vectors(
        self, tenant: str, found: Round, cut: Sequence[list[NewChunk]], models: Sequence[str]
    ) -> list[Written]:
        anew = found.reached.anew
        chunks = [chunk for some in cut for chunk in some]
        embed = partial(self._embedded, tenant, chunks, afresh=anew is not None and anew.afresh)
        vectors = {model: iter(await embed(model)) for model in models}
        return [
            Written(change, some, {model: [next(made) for _ in some] for model, made in vectors.items()})
            for change, some in zip(found.changes, cut, strict=True)
        ]

    def _without_refused(
        self, tenant: str, found: Round, cut: Sequence[list[NewChunk]], refusal: TextRefused
    ) -> list[list[NewChunk]]:
        """Pass over items with a text that is never embedded, for the sake of the rest."""
        is_refused = [any(chunk.embedded in refusal.texts for chunk in some) for some in cut]
        if not any(is_refused):
            raise refusal
        self._metrics.count_passed_over(sum(is_refused))
        for change, is_one in zip(found.changes, is_refused, strict=True):
            if is_one:
                fields = {"tenant": tenant, "source": change.subject.source, "place": change.subject.place}
                _log.warning("a text is refused by the embedder and not searched", extra={"fields": fields})
        return [[] if is_one else some for some, is_one in zip(cut, is_refused, strict=True)]

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

    async def _put(
        self, transaction: Transaction, job: str, found: Round, written: Sequence[Written], models: Sequence[str]
    ) -> bool:
        """Write a round and how far it reaches, together; not at all if a model came into use meanwhile."""
        known, now = self._embeddings.models(), to_micros(self._clock.now())
        if written and await models_in_use(SqlTenantModelStore(transaction), known, now) != models:
            return False
        await self._opened(transaction.tenant, transaction).put(written)
        if job == REINDEXING and not found.more:
            await SqlJobStore(transaction).drop(job)
        else:
            await SqlJobStore(transaction).save(job, found.reached.as_progress())
        return True

    def _opened(self, tenant: str, transaction: Transaction) -> Follower:
        assert self._follower is not None  # noqa: S101 - the app is put together before it runs
        opened: Follower = self._follower(Call(system_actor(tenant), transaction))
        return opened


async def _long_log(transaction: Transaction) -> int | None:
    """Return where a log ends that nobody has followed yet and that takes more than one step; None for any other."""
    standing = await SqlJobStore(transaction).standing(FOLLOWING)
    last = await SqlEventStore(transaction).last_seq()
    is_new = standing is None or not standing.cursor
    return last if is_new and last > EVENTS_AT_ONCE else None


def _cut(change: Change) -> list[NewChunk]:
    """Return the chunks of what an item says. A text that cannot be cut is passed over, for the sake of the rest."""
    if change.said is None:
        return []
    try:
        return chunks_of(change.subject, change.said)
    except Exception:  # noqa: BLE001 - logged, without values
        _log.exception("a text could not be cut", extra={"fields": {"source": change.subject.source}})
        return []
