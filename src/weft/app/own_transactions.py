"""Transactions that an operation opens itself, because it has something to do between them or after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from weft.app.dispatch import log_changes
from weft.app.needs import Call
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.app.needs import Resolver, Source
    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Database, Transaction

T = TypeVar("T")
N = TypeVar("N")


class OwnTransactions(Generic[N]):
    """What a caller needs, gathered anew for each transaction; from what is known once the app is put together."""

    def __init__(self, database: Database, needed: type[N]) -> None:
        self._database = database
        self._needed = needed
        self._source: Source | None = None

    def use(self, resolver: Resolver) -> None:
        self._source = resolver.source(self._needed)

    async def read(self, actor: Actor, work: Callable[[N], Awaitable[T]], *, heavy: bool = False) -> T:
        return await self._database.read(_scope(actor), lambda tx: work(self._opened(actor, tx)), heavy=heavy)

    async def write(
        self,
        actor: Actor,
        work: Callable[[N], Awaitable[T]],
        after: Callable[[Transaction, T], Awaitable[None]] | None = None,
    ) -> T:
        """Do the work and keep what it changed, with what is written down ``after`` it of what it came to."""

        async def done(transaction: Transaction) -> tuple[T, Transaction]:
            result = await work(self._opened(actor, transaction))
            if after is not None:
                await after(transaction, result)
            return result, transaction

        result, transaction = await self._database.write(_scope(actor), done)
        log_changes(_scope(actor), transaction.published)
        return result

    def _opened(self, actor: Actor, transaction: Transaction) -> N:
        assert self._source is not None  # noqa: S101 - the app is put together before it is called
        opened: N = self._source(Call(actor, transaction))
        return opened


def _scope(actor: Actor) -> Scope:
    return Scope(actor.tenant, actor.epoch)
