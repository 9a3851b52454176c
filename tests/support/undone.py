"""Writes that are rolled back after they were made, so that every call sees the same installation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from support.world import World


class Undone(Exception):
    """Carries the result of a transaction that is rolled back."""

    def __init__(self, result: object) -> None:
        self.result = result


def undo_writes(world: World, patch: pytest.MonkeyPatch) -> None:
    """Roll back every write from now on, after it was made."""
    write = world.app.database.write

    async def write_and_undo(scope: Any, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def undo(tx: Any) -> None:
            raise Undone(await work(tx))

        try:
            await write(scope, undo)
        except Undone as undone:
            return undone.result

    patch.setattr(world.app.database, "write", write_and_undo)
