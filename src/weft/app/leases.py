"""Work in steps that has something to do between transactions: one process at a time does it, through a lease."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from weft.app.dispatch import log_changes
from weft.app.jobs import LEASE_MICROS
from weft.app.upkeep import attempt
from weft.kernel.clock import to_micros
from weft.kernel.ids import new_id
from weft.storage.sql.database import Scope
from weft.storage.sql.jobs import SqlJobStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

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

    async def take(self) -> bool:
        """Take the work in hand; False if another process has it."""
        return await self._database.write(self._scope, self._claim) is not None

    async def read(self, look: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._database.read(self._scope, look)

    async def write(self, change: Callable[[Transaction], Awaitable[T]]) -> T:
        """Change something, but only while the work is in this process's hands; hold on to it for longer."""
        result, done = await self._database.write(self._scope, partial(self._change, change))
        log_changes(self._scope, done.published)
        return result

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Show a sign of life now and then, during what takes long between two changes."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(_RENEW_EVERY_SECONDS)
                await attempt(self._work, self._database.write(self._scope, self._renew), tenant=self.tenant)

        renewing = asyncio.create_task(renew(), name="weft-lease")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def release(self) -> None:
        """Let go of the work, so that any process can go on with it."""
        await self._database.write(self._scope, self._let_go)

    async def _claim(self, transaction: Transaction) -> object | None:
        now = self._now()
        return await SqlJobStore(transaction).claim(self._work, self._holder, now, now + LEASE_MICROS, due_by=_WHENEVER)

    async def _change(
        self, change: Callable[[Transaction], Awaitable[T]], transaction: Transaction
    ) -> tuple[T, Transaction]:
        # First of all, so that nobody else can take over before this transaction ends.
        if not await self._renew(transaction):
            raise LeaseLost
        return await change(transaction), transaction

    async def _renew(self, transaction: Transaction) -> bool:
        until = self._now() + LEASE_MICROS
        return await SqlJobStore(transaction).renew(self._work, self._holder, until) is not None

    async def _let_go(self, transaction: Transaction) -> None:
        store = SqlJobStore(transaction)
        if await store.renew(self._work, self._holder, 0) is not None:
            await store.release(self._work, 0)

    def _now(self) -> int:
        return to_micros(self._clock.now())
