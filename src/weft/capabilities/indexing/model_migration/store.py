"""What moving between models needs of storage."""

from __future__ import annotations

from typing import Protocol

from weft.capabilities.indexing.model_migration.model import Move


class MoveStore(Protocol):
    """The last move of the transaction's tenant from one model to another."""

    async def find(self) -> Move | None: ...

    async def find_locked(self) -> Move | None:
        """Return it, keeping other writers of it waiting."""
        ...

    async def save(self, move: Move) -> None: ...
