"""Long work that shares its thread with others."""

from __future__ import annotations

from typing import Protocol


class Turns(Protocol):
    """What long work inside a transaction asks now and then, so that it keeps nobody waiting."""

    async def give_way(self) -> None:
        """Let whoever else waits for this thread have a turn."""
        ...
