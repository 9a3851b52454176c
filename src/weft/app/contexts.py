"""Reading contexts on behalf of a caller, for operations that have something to do after the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from weft.app.needs import Call
from weft.capabilities.context.contexts import Contexts
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.app.needs import Resolver, Source
    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Database, Transaction

T = TypeVar("T")


class SqlContextReads:
    """Contexts, opened in transactions of their own. What it opens them with is known once the app is put together."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._contexts: Source | None = None

    def use(self, resolver: Resolver) -> None:
        self._contexts = resolver.source(Contexts)

    async def read(self, actor: Actor, work: Callable[[Contexts], Awaitable[T]]) -> T:
        scope = Scope(actor.tenant, actor.epoch)
        return await self._database.read(scope, lambda tx: work(self._opened(actor, tx)), heavy=True)

    def _opened(self, actor: Actor, transaction: Transaction) -> Contexts:
        assert self._contexts is not None  # noqa: S101 - the app is put together before it is called
        opened: Contexts = self._contexts(Call(actor, transaction))
        return opened
