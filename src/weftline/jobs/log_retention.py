"""Retention of events and audit rows: one job deletes what is older than the settings say, in small batches."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from weftline.jobs.scheduler import Work
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.ports import Progress
from weftline.storage.sql.database import SYSTEM
from weftline.storage.sql.jobs import SqlJobStore
from weftline.storage.sql.log_retention import SqlLogRetention, tenants_past_retention

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.log_retention import PrunedEvent, ScannedEvents

PRUNE_LOGS = "logs.prune"
_BATCH = 200
_SCAN = 2_000
# Scanned before anything is deleted.
_MAX_SCANNED = 20_000


class LogDays(NamedTuple):
    """Days for which events and audit rows are kept; 0: forever."""

    events: int
    audit: int


class LogRetention:
    """Deletes events and audit rows that are past retention."""

    def __init__(self, runner: LeaseRunner, days: LogDays, *, indexing: bool) -> None:
        self._runner = runner
        self._days = days
        self._indexing = indexing

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants that may have something to delete."""
        if not any(self._days):
            return []
        now = self._runner.now
        before = (_cutoff(now, self._days.events), _cutoff(now, self._days.audit))
        tenants = await self._runner.database.read(SYSTEM, lambda tx: tenants_past_retention(tx, *before, now))
        return [Work(tenant) for tenant in tenants]

    async def run(self, work: Work) -> None:
        await self._runner.run(work.tenant, PRUNE_LOGS, self._prune)

    async def _prune(self, lease: Lease) -> None:
        now = await lease.advance(partial(judged_time, PRUNE_LOGS, self._runner.now))
        if self._days.events:
            await self._prune_events(lease, _cutoff(now, self._days.events), now)
        if self._days.audit:
            before = _cutoff(now, self._days.audit)
            await _repeat(lease, lambda tx: SqlLogRetention(tx).delete_audit_rows(before, now, _BATCH))

    async def _prune_events(self, lease: Lease, before: int, now: int) -> None:
        position: int | None = 0
        while position is not None:
            past, position = await self._scan(lease, before, now, position)
            if past is None:
                return
            await _repeat(lease, partial(self._delete, past))

    async def _delete(self, past: PrunedEvent, transaction: Transaction) -> bool:
        return await SqlLogRetention(transaction).delete_events(past, _BATCH, indexing=self._indexing)

    async def _scan(self, lease: Lease, before: int, now: int, after: int) -> tuple[PrunedEvent | None, int | None]:
        """Return the last of the next events that are past retention, and where to scan on."""
        past, position, scanned = None, after, 0
        while True:
            found = await lease.read(partial(self._scan_page, before, now, position))
            past = found.past or past
            scanned += _SCAN
            if found.position is None or (past is not None and scanned >= _MAX_SCANNED):
                return past, found.position
            position = found.position

    async def _scan_page(self, before: int, now: int, after: int, transaction: Transaction) -> ScannedEvents:
        return await SqlLogRetention(transaction).scan_events(before, now, after, _SCAN, indexing=self._indexing)


async def judged_time(job: str, clock: int, transaction: Transaction, progress: Progress) -> int:
    """Return the time by which a retention job judges.

    It is at most a day later than at the last run, so that a clock that was wrong for a while deletes little.
    """
    last = int(progress.cursor or 0)
    now = min(clock, last + DAY_MICROS) if last else clock
    await SqlJobStore(transaction).save(job, Progress(str(now)))
    return now


async def _repeat(lease: Lease, step: Callable[[Transaction], Awaitable[bool]]) -> None:
    """Do a step until it has nothing more to do, with pauses for other work."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while await lease.write(step):
        await lease.rest(started)
        started = loop.time()


def _cutoff(now: int, days: int) -> int:
    """Return the time before which rows are past retention; 0 if they are kept forever."""
    return max(1, now - days * DAY_MICROS) if days else 0
