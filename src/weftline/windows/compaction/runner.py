"""The port of what performs compactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor


class CompactionRunner(Protocol):
    """Performs a queued compaction, or joins its run."""

    async def run(self, actor: Actor, compaction_id: str, wait_seconds: float) -> None:
        """Return when the compaction is finished, or after this time: then it goes on."""
        ...
