"""Performs compactions: events at one head, the result computed without a transaction, then applied."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from weft.capabilities.compaction.compactor import Compactor
from weft.capabilities.compaction.model import CompactionSource, CompactionState
from weft.capabilities.compaction.service import Compactions
from weft.capabilities.compaction.summariser import ExtractiveSummariser
from weft.kernel.ports import Transactions
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from weft.capabilities.compaction.service import RunningCompaction
    from weft.kernel.identity import Actor

_log = logging.getLogger(__name__)


class CompactionRunner(Protocol):
    """Performs a queued compaction, or joins its run."""

    async def run(self, actor: Actor, compaction_id: str, wait_seconds: float) -> None:
        """Return when the compaction is finished, or after this time: then it goes on."""
        ...


class DirectRunner(msgspec.Struct, frozen=True):
    """Performs a compaction at once, for the caller who waits for it."""

    transactions: Transactions[Compactions]

    async def run(self, actor: Actor, compaction_id: str, wait_seconds: float) -> None:
        del wait_seconds
        running = await self.transactions.write(actor, lambda compactions: compactions.begin(compaction_id))
        if running is None:
            return
        try:
            draft = await Compactor().compact(_source(running), running.compaction.strategy, ExtractiveSummariser())
        except Exception:  # noqa: BLE001 - nobody else ends the run
            _log.exception("A compaction failed")
            await self.transactions.write(
                actor, lambda compactions: compactions.end(compaction_id, CompactionState.FAILED, "It failed.")
            )
            return
        await self.transactions.write(actor, lambda compactions: compactions.finish(compaction_id, draft))


def _source(running: RunningCompaction) -> CompactionSource:
    compaction = running.compaction
    return CompactionSource(running.events, (), compaction.target, compaction.keep_recent, approximate_tokens)
