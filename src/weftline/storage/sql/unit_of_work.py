"""Units of work: a transaction, with the services that work on it built for one actor."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from weftline.kernel.identity import system_actor
from weftline.safety.approvals.sql import ApprovalStore
from weftline.storage.sql.database import Scope, caller_scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weftline.kernel.events import NewEvent
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

T = TypeVar("T")
N = TypeVar("N")

_changes = logging.getLogger("weftline.changes")


class Injector(Protocol):
    """Builds services by type."""

    def build(self, need: type[N], actor: Actor, transaction: Transaction) -> N:
        """Return a ``need`` that acts for this actor in this transaction."""
        ...


class CallerTransactions(Generic[N]):
    """Transactions of a caller. They fail with AccessChanged once the caller's access rules have changed."""

    def __init__(self, database: Database, injector: Injector, need: type[N]) -> None:
        self._database = database
        self._injector = injector
        self._need = need

    async def read(self, actor: Actor, work: Callable[[N], Awaitable[T]], *, heavy: bool = False) -> T:
        return await self._database.read(caller_scope(actor), lambda tx: work(self._build(actor, tx)), heavy=heavy)

    async def write(self, actor: Actor, work: Callable[[N], Awaitable[T]]) -> T:
        async def inside(transaction: Transaction) -> T:
            await begin_approved(transaction, actor)
            return await work(self._build(actor, transaction))

        return await logged_write(self._database, caller_scope(actor), inside)

    def _build(self, actor: Actor, transaction: Transaction) -> N:
        return self._injector.build(self._need, actor, transaction)


class SystemTransactions(Generic[N]):
    """Transactions of background work: the system actor, inside one tenant."""

    def __init__(self, database: Database, injector: Injector, need: type[N]) -> None:
        self._database = database
        self._injector = injector
        self._need = need

    async def read(self, tenant: str, work: Callable[[N], Awaitable[T]]) -> T:
        return await self._database.read(Scope(tenant), self.doing(work))

    async def write(self, tenant: str, work: Callable[[N], Awaitable[T]]) -> T:
        return await logged_write(self._database, Scope(tenant), self.doing(work))

    def doing(self, work: Callable[[N], Awaitable[T]]) -> Callable[[Transaction], Awaitable[T]]:
        """Return the work as a function of a transaction that somebody else opens, such as one under a lease."""
        return lambda transaction: work(self.within(transaction))

    def within(self, transaction: Transaction) -> N:
        return self._injector.build(self._need, system_actor(transaction.tenant), transaction)


async def begin_approved(transaction: Transaction, actor: Actor | None) -> None:
    """Note that the changes of an approved call are committed with this transaction, so that no one repeats them.

    Raises PerformedElsewhere if another process has taken the call over.
    """
    if actor is not None and actor.approval is not None and not actor.approval.preparing:
        await ApprovalStore(transaction).begin(actor.approval)


async def logged_write(database: Database, scope: Scope, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run ``work``, commit, and log its changes."""

    async def inside(transaction: Transaction) -> tuple[T, Transaction]:
        return await work(transaction), transaction

    result, done = await database.write(scope, inside)
    log_changes(scope, done.published)
    return result


def log_changes(scope: Scope, events: Sequence[NewEvent]) -> None:
    """Log the metadata of committed changes: keys, sizes and versions, never values."""
    if not _changes.isEnabledFor(logging.INFO):
        return
    for event in events:
        subject = {"key": event.subject} if event.type.startswith(("board.", "branch.")) else {}
        fields = {"tenant": scope.tenant, "session_id": event.session_id, **subject, "written_by": event.actor}
        # makeLogRecord skips the stack inspection of Logger.info, which costs as much as an SQL statement.
        line = {"name": _changes.name, "levelno": logging.INFO, "levelname": "INFO", "msg": event.type}
        _changes.handle(logging.makeLogRecord({**line, "fields": {**fields, **event.data}}))
