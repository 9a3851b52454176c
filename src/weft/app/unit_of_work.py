"""Transactions that are opened by whoever has something to do between them or after: an operation, or the system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from weft.app.dispatch import log_changes
from weft.app.injection import CallScope
from weft.app.system_actor import system_actor
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.app.injection import Resolver, Source
    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Database, Transaction

T = TypeVar("T")
N = TypeVar("N")


class ScopedNeeds(Generic[N]):
    """What a transaction needs, gathered anew for each; from what is known once the app is put together."""

    def __init__(self, needed: type[N]) -> None:
        self._needed = needed
        self._source: Source | None = None

    def use(self, resolver: Resolver) -> None:
        self._source = resolver.source(self._needed)

    def gathered(self, actor: Actor, transaction: Transaction) -> N:
        assert self._source is not None  # noqa: S101 - the app is put together before it is called, or runs
        needed: N = self._source(CallScope(actor, transaction))
        return needed


class CallerTransactions(ScopedNeeds[N]):
    """Transactions of a caller, under the access that the caller was given."""

    def __init__(self, database: Database, needed: type[N]) -> None:
        super().__init__(needed)
        self._database = database

    async def read(self, actor: Actor, work: Callable[[N], Awaitable[T]], *, heavy: bool = False) -> T:
        return await self._database.read(_scope(actor), lambda tx: work(self.gathered(actor, tx)), heavy=heavy)

    async def write(
        self,
        actor: Actor,
        work: Callable[[N], Awaitable[T]],
        after: Callable[[Transaction, T], Awaitable[None]] | None = None,
    ) -> T:
        """Do the work and keep what it changed, with what is written down ``after`` it of what it came to."""

        async def done(transaction: Transaction) -> T:
            result = await work(self.gathered(actor, transaction))
            if after is not None:
                await after(transaction, result)
            return result

        return await logged_write(self._database, _scope(actor), done)


class SystemTransactions(ScopedNeeds[N]):
    """Transactions of work that goes on by itself: the system acts, inside one tenant at a time."""

    def __init__(self, database: Database, needed: type[N]) -> None:
        super().__init__(needed)
        self._database = database

    async def read(self, tenant: str, work: Callable[[N], Awaitable[T]]) -> T:
        return await self._database.read(Scope(tenant), self.doing(work))

    async def write(self, tenant: str, work: Callable[[N], Awaitable[T]]) -> T:
        return await logged_write(self._database, Scope(tenant), self.doing(work))

    def doing(self, work: Callable[[N], Awaitable[T]]) -> Callable[[Transaction], Awaitable[T]]:
        """Return the work as it is done in a transaction that another opens, such as one under a lease."""
        return lambda transaction: work(self.within(transaction))

    def within(self, transaction: Transaction) -> N:
        return self.gathered(system_actor(transaction.tenant), transaction)


async def logged_write(database: Database, scope: Scope, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Do the work, and log what it changed once that is kept."""

    async def inside(transaction: Transaction) -> tuple[T, Transaction]:
        return await work(transaction), transaction

    result, done = await database.write(scope, inside)
    log_changes(scope, done.published)
    return result


def _scope(actor: Actor) -> Scope:
    return Scope(actor.tenant, actor.epoch)
