"""The daily pruning of all lines, and that of one on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from weft.capabilities.history.model import SYSTEM
from weft.capabilities.history.operation_ports import PruningRun
from weft.capabilities.history.pruning import HistoryPruning, PruneJobCursor, PruneRequest, PruneTotals
from weft.kernel.identity import system_actor
from weft.kernel.jobs import Progress

if TYPE_CHECKING:
    from weft.jobs.runner import JobRunner
    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Transaction
    from weft.storage.sql.unit_of_work import Injector

T = TypeVar("T")

# As long as somebody who asked for all of it should wait; what is left then goes on by itself.
_PRUNE_SECONDS = 20.0
PRUNE = "history.prune"
_encode = msgspec.json.Encoder().encode


class PruneJob:
    """Pruning as a job: of all lines of a tenant once a day, or of one line at once."""

    def __init__(self, injector: Injector, errand: PruneRequest) -> None:
        self._injector = injector
        self._errand = errand
        self.name = PRUNE if errand.only is None else f"{PRUNE} {errand.only}"
        self.daily = errand.only is None

    async def step(self, transaction: Transaction, progress: Progress) -> tuple[Progress, bool]:
        pruning = self._injector.build(HistoryPruning, system_actor(transaction.tenant), transaction)
        spot = _decoded(progress.cursor, PruneJobCursor)
        following, tally = await pruning.step(spot, _decoded(progress.done, PruneTotals), self._errand)
        cursor = "" if following is None else _encode(following).decode()
        return Progress(cursor, _encode(tally).decode()), following is None

    def past_failure(self, progress: Progress) -> Progress | None:
        """Return what lies behind a line that cannot be pruned, if that line is known and is not all there is to do."""
        spot = _decoded(progress.cursor, PruneJobCursor)
        if self._errand.only is not None or spot.pruning_id is None:
            return None
        return Progress(_encode(PruneJobCursor(spot.line_id)).decode(), progress.done)


class HistoryPruner:
    """The pruning job, by itself and on demand."""

    def __init__(self, jobs: JobRunner, injector: Injector) -> None:
        self._jobs = jobs
        self._injector = injector

    async def prune(self, actor: Actor, line_id: str | None) -> PruningRun:
        job = self._job(PruneRequest(line_id, actor.participant))
        run = await self._jobs.run(actor.tenant, job, seconds=_PRUNE_SECONDS if job.daily else None)
        tally = _decoded(run.done, PruneTotals)
        return PruningRun(run.started, run.finished, tally.versions, tally.bytes)

    async def run_due(self) -> None:
        """Prune every tenant whose turn it is."""
        await self._jobs.run_due(self._job(PruneRequest(None, SYSTEM.participant)))

    async def run(self) -> None:
        """Prune every tenant once a day for as long as the process lives."""
        await self._jobs.run_forever(self._job(PruneRequest(None, SYSTEM.participant)))

    def _job(self, errand: PruneRequest) -> PruneJob:
        return PruneJob(self._injector, errand)


def _decoded(text: str, kind: type[T]) -> T:
    return msgspec.json.decode(text, type=kind) if text else kind()
