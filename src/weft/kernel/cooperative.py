"""Long work that shares its thread with others."""

from __future__ import annotations

from typing import Protocol


class Cooperative(Protocol):
    """What long work inside a transaction asks now and then, so that it keeps nobody waiting."""

    async def yield_to_loop(self) -> None:
        """Let whoever else waits for this thread have a turn."""
        ...
