"""Work in steps that has something to do between transactions: one process at a time does it, through a lease."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from weft.jobs.periodic import attempt
from weft.jobs.runner import LEASE_MICROS
from weft.kernel.clock import to_micros
from weft.kernel.errors import WeftError
from weft.kernel.ids import new_id
from weft.storage.sql.database import Scope
from weft.storage.sql.jobs import SqlJobStore
from weft.storage.sql.unit_of_work import logged_write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction

T = TypeVar("T")
_WHENEVER = 2**62
_RENEW_EVERY_SECONDS = LEASE_MICROS / 1_000_000 / 3


class LeaseLost(Exception):
    """Another process has taken the work over."""


class Lease:
    """One piece of a tenant's work, in this process's hands."""

    def __init__(self, database: Database, clock: Clock, tenant: str, work: str) -> None:
        self._database = database
        self._clock = clock
        self.tenant = tenant
        self._scope = Scope(tenant)
        self._work = work
        self._holder = new_id("worker")

    async def do(self, work: Callable[[Lease], Awaitable[None]]) -> None:
        """Do the work unless another process does, and no further once another has taken it over; then let go of it."""
        if await self._database.write(self._scope, self._claim) is None:
            return
        try:
            await work(self)
        except LeaseLost:
            return
        finally:
            with contextlib.suppress(WeftError):
                await self._database.write(self._scope, self._let_go)

    async def read(self, look: Callable[[Transaction], Awaitable[T]], *, heavy: bool = False) -> T:
        return await self._database.read(self._scope, look, heavy=heavy)

    async def write(self, change: Callable[[Transaction], Awaitable[T]]) -> T:
        """Change something, but only while the work is in this process's hands; hold on to it for longer."""
        return await logged_write(self._database, self._scope, partial(self._change, change))

    def held(self) -> AbstractAsyncContextManager[None]:
        """Hold on to the work during what takes long between two changes."""
        return renewing(self._work, self.tenant, lambda: self._database.write(self._scope, self._renew))

    async def _claim(self, transaction: Transaction) -> object | None:
        now = self._now()
        return await SqlJobStore(transaction).claim(self._work, self._holder, now, now + LEASE_MICROS, due_by=_WHENEVER)

    async def _change(self, change: Callable[[Transaction], Awaitable[T]], transaction: Transaction) -> T:
        # First of all, so that nobody else can take over before this transaction ends.
        if not await self._renew(transaction):
            raise LeaseLost
        return await change(transaction)

    async def _renew(self, transaction: Transaction) -> bool:
        until = self._now() + LEASE_MICROS
        return await SqlJobStore(transaction).renew(self._work, self._holder, until) is not None

    async def _let_go(self, transaction: Transaction) -> None:
        store = SqlJobStore(transaction)
        if await store.renew(self._work, self._holder, 0) is not None:
            await store.release(self._work, 0)

    def _now(self) -> int:
        return to_micros(self._clock.now())


@contextlib.asynccontextmanager
async def renewing(work: str, tenant: str, renew: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Show a sign of life now and then, for as long as something takes."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(_RENEW_EVERY_SECONDS)
            await attempt(work, renew(), tenant=tenant)

    signs = asyncio.create_task(go_on(), name="weft-lease")
    try:
        yield
    finally:
        signs.cancel()
        await asyncio.gather(signs, return_exceptions=True)
