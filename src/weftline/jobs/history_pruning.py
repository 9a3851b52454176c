"""History pruning: of all lines of a tenant once a day, and of one line or all on demand."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from weftline.history.model import SYSTEM
from weftline.history.pruning import HistoryPruning, PruneJobCursor, PruneRequest, PruneTotals
from weftline.history.store import PruningRun
from weftline.jobs.runner import LeaseLost
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.errors import WeftlineError
from weftline.kernel.identity import system_actor
from weftline.kernel.job_store import JobStore, Progress

if TYPE_CHECKING:
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.unit_of_work import Injector

T = TypeVar("T")

PRUNE = "history.prune"
# A caller that prunes everything waits this long; the rest is done in the background.
_PRUNE_SECONDS = 20.0
_log = logging.getLogger("weftline.jobs")
_encode = msgspec.json.Encoder().encode


class HistoryPruner:
    """Prunes history in steps, each a transaction."""

    def __init__(self, runner: LeaseRunner, injector: Injector) -> None:
        self._runner = runner
        self._injector = injector

    async def run(self, tenant: str) -> None:
        """Prune all lines of a tenant, if that is due."""
        request = PruneRequest(None, SYSTEM.participant)
        await self._runner.run(tenant, PRUNE, partial(self._prune, request=request), only_if_due=True)

    async def prune(self, actor: Actor, line_id: str | None) -> PruningRun:
        request = PruneRequest(line_id, actor.participant)
        name, seconds = (PRUNE, _PRUNE_SECONDS) if line_id is None else (f"{PRUNE} {line_id}", None)
        work = partial(self._prune, request=request, seconds=seconds)
        run = await self._runner.run(actor.tenant, name, work)
        return run or PruningRun(started=False, finished=False, versions=0, bytes=0)

    async def _prune(self, lease: Lease, request: PruneRequest, seconds: float | None = None) -> PruningRun:
        """Do steps until nothing is left or the time is up."""
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + seconds
        progress, finished = Progress(), False
        while not finished and (deadline is None or loop.time() <= deadline):
            try:
                progress, finished = await self._step_or_skip(lease, request)
            except LeaseLost:
                break
        totals = _decoded(progress.done, PruneTotals)
        return PruningRun(started=True, finished=finished, versions=totals.versions, bytes=totals.bytes)

    async def _step_or_skip(self, lease: Lease, request: PruneRequest) -> tuple[Progress, bool]:
        """Do one step. A line that fails unexpectedly is logged and skipped, so that the others are pruned."""
        try:
            return await lease.advance(partial(self._step, lease.name, request))
        except (WeftlineError, LeaseLost):
            raise
        except Exception:
            _log.exception("pruning a line failed", extra={"fields": {"job": lease.name, "tenant": lease.tenant}})
            skipped = await lease.advance(partial(_skip, lease.name, request))
            if skipped is None:
                raise
            return skipped, False

    async def _step(
        self, job: str, request: PruneRequest, transaction: Transaction, progress: Progress
    ) -> tuple[Progress, bool]:
        pruning = self._injector.build(HistoryPruning, system_actor(transaction.tenant), transaction)
        cursor = _decoded(progress.cursor, PruneJobCursor)
        following, totals = await pruning.step(cursor, _decoded(progress.done, PruneTotals), request)
        progress = Progress("" if following is None else _encode(following).decode(), _encode(totals).decode())
        jobs = JobStore(transaction)
        if following is not None:
            await jobs.save(job, progress)
        elif request.only is None:
            await jobs.finish(job, self._runner.now + DAY_MICROS)
        else:
            await jobs.drop(job)
        return progress, following is None


async def _skip(job: str, request: PruneRequest, transaction: Transaction, progress: Progress) -> Progress | None:
    """Move the cursor past the line it is at; None if that line is unknown or the only one."""
    cursor = _decoded(progress.cursor, PruneJobCursor)
    if request.only is not None or cursor.pruning_id is None:
        return None
    skipped = Progress(_encode(PruneJobCursor(cursor.line_id)).decode(), progress.done)
    await JobStore(transaction).save(job, skipped)
    return skipped


def _decoded(text: str, kind: type[T]) -> T:
    return msgspec.json.decode(text, type=kind) if text else kind()
