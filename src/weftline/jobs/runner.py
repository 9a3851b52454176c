"""Leased work in steps: one process at a time does it, and another resumes from the saved cursor if that one dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from weftline.kernel.clock import to_micros
from weftline.kernel.errors import WeftlineError
from weftline.kernel.fields import new_id
from weftline.kernel.job_store import JobStore, Progress, tenants_with_due
from weftline.kernel.ports import LEASE_MICROS
from weftline.kernel.thread_pools import CALLER
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.unit_of_work import logged_write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

T = TypeVar("T")

_ALWAYS = 2**62
_RENEW_EVERY_SECONDS = LEASE_MICROS / 1_000_000 / 3
_log = logging.getLogger("weftline.jobs")
# What fails at present, by job and tenant, with the code of the error.
_failing: dict[tuple[str, ...], str] = {}


class LeaseLost(Exception):
    """Another process has taken the work over, or this one is shutting down."""


class LeaseRunner:
    """Runs work of any tenant under a lease, in this process."""

    def __init__(self, database: Database, clock: Clock, stopping: asyncio.Event | None = None) -> None:
        self.database = database
        self.clock = clock
        self.stopping = stopping or asyncio.Event()
        # Pause after each step, as a multiple of the time it took, so that callers get at least half of the resources.
        self.rest = 1.0

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def run(
        self, tenant: str, name: str, work: Callable[[Lease], Awaitable[T]], *, only_if_due: bool = False
    ) -> T | None:
        """Run the work while its lease is held, then release it; None if another process holds or takes the lease."""
        CALLER.set((tenant, ""))
        lease = Lease(self, tenant, name)
        if not await lease.claim(self.now if only_if_due else _ALWAYS):
            return None
        try:
            return await work(lease)
        except LeaseLost:
            return None
        finally:
            with contextlib.suppress(WeftlineError):
                await lease.release()

    async def tenants_due(self, name: str) -> list[str]:
        """Return the tenants for which a job that is repeated at intervals is due."""
        return await self.database.read(SYSTEM, lambda tx: tenants_with_due(tx, name, self.now))


class Lease:
    """The exclusive right to one piece of a tenant's work, renewed with each change."""

    def __init__(self, runner: LeaseRunner, tenant: str, name: str) -> None:
        self._runner = runner
        self._database = runner.database
        self._scope = Scope(tenant)
        self._holder = new_id("worker")
        self.tenant = tenant
        self.name = name

    async def claim(self, due_by: int) -> bool:
        now = self._runner.now

        async def claim(transaction: Transaction) -> bool:
            jobs = JobStore(transaction)
            return await jobs.claim(self.name, self._holder, now, now + LEASE_MICROS, due_by=due_by) is not None

        return await self._database.write(self._scope, claim)

    @property
    def is_stopping(self) -> bool:
        return self._runner.stopping.is_set()

    async def read(self, look: Callable[[Transaction], Awaitable[T]], *, heavy: bool = False) -> T:
        return await self._database.read(self._scope, look, heavy=heavy)

    async def write(self, change: Callable[[Transaction], Awaitable[T]]) -> T:
        """Change something if the lease is still held, and renew it; raise LeaseLost otherwise."""
        return await self.advance(lambda transaction, _: change(transaction))

    async def advance(self, step: Callable[[Transaction, Progress], Awaitable[T]]) -> T:
        """Do a step from the saved progress, in one transaction with the renewal."""
        if self._runner.stopping.is_set():
            raise LeaseLost
        return await logged_write(self._database, self._scope, partial(self._step, step))

    def renewed(self) -> AbstractAsyncContextManager[None]:
        """Return a context that renews the lease during slow work between two changes."""
        return renewing(self.name, self.tenant, lambda: self._database.write(self._scope, self._renew))

    async def rest(self, started: float) -> None:
        """Pause in proportion to the time since ``started``, or until the process shuts down."""
        await self.pause((asyncio.get_running_loop().time() - started) * self._runner.rest)

    async def pause(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._runner.stopping.wait()

    async def release(self) -> None:
        await self._database.write(self._scope, self._release)

    async def _step(self, step: Callable[[Transaction, Progress], Awaitable[T]], transaction: Transaction) -> T:
        # First, so that no other process can take over before this transaction ends.
        progress = await self._renew(transaction)
        if progress is None:
            raise LeaseLost
        return await step(transaction, progress)

    async def _renew(self, transaction: Transaction) -> Progress | None:
        return await JobStore(transaction).renew(self.name, self._holder, self._runner.now + LEASE_MICROS)

    async def _release(self, transaction: Transaction) -> None:
        jobs = JobStore(transaction)
        # Finished or dropped work has no holder any more, and keeps the time it is next due at.
        if await jobs.renew(self.name, self._holder, 0) is not None:
            await jobs.release(self.name, 0)


@contextlib.asynccontextmanager
async def renewing(work: str, tenant: str, renew: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Renew a lease at intervals for as long as the block runs."""

    async def renew_repeatedly() -> None:
        while True:
            await asyncio.sleep(_RENEW_EVERY_SECONDS)
            await attempt(work, renew(), tenant=tenant)

    task = asyncio.create_task(renew_repeatedly(), name="weftline-lease")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def attempt(what: str, work: Awaitable[object], **where: str) -> bool:
    """Await the work and return whether it succeeded. Failures are logged, without values.

    An expected error, such as an unreachable database, is logged when it begins and when it ends, not each time.
    """
    try:
        await work
    except WeftlineError as error:
        _note(what, where, error.code)
        return False
    except Exception:  # noqa: BLE001 - other work must go on
        _log.exception("job failed", extra={"fields": {"job": what, **where}})
        return False
    _note(what, where, None)
    return True


def _note(what: str, where: dict[str, str], code: str | None) -> None:
    key = (what, *where.values())
    if _failing.get(key) == code:
        return
    fields = {"job": what, **where}
    if code is None:
        del _failing[key]
        _log.info("job recovered", extra={"fields": fields})
    else:
        _failing[key] = code
        _log.warning("job fails", extra={"fields": {**fields, "code": code}})
