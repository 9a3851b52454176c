"""Operations that a caller may use, by the rules of dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.app.dispatch import authorise
from weft.kernel.errors import PermissionDenied
from weft.kernel.operation import Audience
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.kernel.identity import Actor
    from weft.kernel.operation import Operation, RateClass, Registry
    from weft.storage.sql.database import Database, Transaction


class RegisteredOperations:
    """Lists the operations of a caller."""

    def __init__(self, registry: Registry, rates: Mapping[RateClass, str], database: Database) -> None:
        self._registry = registry
        self._rates = rates
        self._database = database

    async def to(self, actor: Actor) -> list[Operation]:
        # Reads nothing: opening the transaction checks that the caller's access rules have not changed.
        await self._database.read(Scope(actor.tenant, actor.epoch), _nothing)
        return [operation for operation in self._registry if may_use(operation, actor)]

    def limit(self, rate: RateClass) -> str:
        return self._rates[rate]


async def _nothing(_: Transaction) -> None:
    """Read nothing."""


def may_use(operation: Operation, actor: Actor) -> bool:
    # A caller with a credential needs no token, and an API key does not belong in a model's context.
    if operation.audience is Audience.ANONYMOUS or (operation.name == "token.refresh" and actor.token_id is None):
        return False
    try:
        authorise(operation, actor)
    except PermissionDenied:
        return False
    return True
