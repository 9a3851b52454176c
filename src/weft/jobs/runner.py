"""Work that goes on by itself, in steps. One process at a time does it, and none is done twice."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weft.jobs.periodic import attempt, every
from weft.kernel.clock import DAY_MICROS, to_micros
from weft.kernel.errors import WeftError
from weft.kernel.ids import new_id
from weft.kernel.jobs import Progress
from weft.storage.sql.database import SYSTEM, Scope
from weft.storage.sql.jobs import SqlJobStore, tenants_with_due
from weft.storage.sql.unit_of_work import log_changes

if TYPE_CHECKING:
    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction

_log = logging.getLogger("weft.upkeep")
_LOOK_EVERY_SECONDS = 60.0
# Whoever takes longer than this over one step is taken for dead.
LEASE_MICROS = 60_000_000
_ALWAYS = 2**62


class Job(Protocol):
    """Something to be done in steps, each a transaction."""

    name: str
    daily: bool

    async def step(self, transaction: Transaction, progress: Progress) -> tuple[Progress, bool]:
        """Do the next step; return how far that got, and whether it was the last."""
        ...

    def past_failure(self, progress: Progress) -> Progress | None:
        """Return where to go on behind a step that fails whenever it is tried; None if there is no such place."""
        ...


class Run(NamedTuple):
    """What became of a job: who else was at it, or how far it got."""

    started: bool
    finished: bool
    done: str


_NOT_STARTED = Run(started=False, finished=False, done="")


class JobRunner:
    """Does jobs of any tenant, in this process, while no other does the same."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.holder = new_id("worker")

    async def run(self, tenant: str, job: Job, *, only_if_due: bool = False, seconds: float | None = None) -> Run:
        """Do a job from where it stands to its end, or for as long as there is time."""
        scope = Scope(tenant)
        now = self._now()
        claim = partial(self._claim, job.name, due_by=now if only_if_due else _ALWAYS)
        progress = await self._database.write(scope, claim)
        if progress is None:
            return _NOT_STARTED
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while True:
            step = await self._step_or_pass(scope, job)
            if step is None:
                return Run(started=True, finished=False, done=progress.done)
            progress, finished = step
            if finished:
                return Run(started=True, finished=True, done=progress.done)
            if deadline is not None and asyncio.get_running_loop().time() > deadline:
                await self._database.write(scope, lambda tx: SqlJobStore(tx).release(job.name, 0))
                return Run(started=True, finished=False, done=progress.done)

    async def run_due(self, job: Job) -> None:
        """Do a job for every tenant it is due for."""
        now = self._now()
        for tenant in await self._database.read(SYSTEM, lambda tx: tenants_with_due(tx, job.name, now)):
            await attempt(job.name, self.run(tenant, job, only_if_due=True), tenant=tenant)

    async def run_forever(self, job: Job) -> None:
        await every(_LOOK_EVERY_SECONDS, job.name, lambda: self.run_due(job))

    def _now(self) -> int:
        return to_micros(self._clock.now())

    async def _claim(self, job: str, transaction: Transaction, *, due_by: int) -> Progress | None:
        now = self._now()
        return await SqlJobStore(transaction).claim(job, self.holder, now, now + LEASE_MICROS, due_by=due_by)

    async def _step_or_pass(self, scope: Scope, job: Job) -> tuple[Progress, bool] | None:
        """Do one step. One that fails for no known reason is logged and passed over, for the sake of the rest."""
        try:
            return await self._step(scope, job)
        except WeftError:
            raise
        except Exception:
            _log.exception("step of a job failed", extra={"fields": {"job": job.name, "tenant": scope.tenant}})
            passed = await self._database.write(scope, partial(self._pass_over, job))
            if passed is None:
                raise
            return passed, False

    async def _pass_over(self, job: Job, transaction: Transaction) -> Progress | None:
        store = SqlJobStore(transaction)
        standing = await store.renew(job.name, self.holder, self._now() + LEASE_MICROS)
        further = None if standing is None else job.past_failure(standing)
        if further is not None:
            await store.save(job.name, further)
        return further

    async def _step(self, scope: Scope, job: Job) -> tuple[Progress, bool] | None:
        """Do one step; None if another process has taken over."""

        async def work(transaction: Transaction) -> tuple[Transaction, tuple[Progress, bool] | None]:
            store = SqlJobStore(transaction)
            # First of all, so that nobody else can do this step or take the job over before this transaction ends.
            standing = await store.renew(job.name, self.holder, self._now() + LEASE_MICROS)
            if standing is None:
                return transaction, None
            progress, finished = await job.step(transaction, standing)
            if not finished:
                await store.save(job.name, progress)
            elif job.daily:
                await store.finish(job.name, self._now() + DAY_MICROS)
            else:
                await store.drop(job.name)
            return transaction, (progress, finished)

        done, step = await self._database.write(scope, work)
        log_changes(scope, done.published)
        return step
