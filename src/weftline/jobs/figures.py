"""Roll-up of usage and evaluation of alerts."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from weftline.access.plan_warnings import Plans
from weftline.insight.alerts.model import KEEP_MICROS, STALE_MICROS
from weftline.insight.alerts.service import AlertEvaluation
from weftline.insight.alerts.sql import tenants_with_new_calls, tenants_with_old_alerts
from weftline.jobs.scheduler import Work
from weftline.kernel.clock import to_micros
from weftline.kernel.identity import system_actor
from weftline.kernel.job_store import JobStore, Progress
from weftline.models.budgets import period_start
from weftline.models.metering import Retention
from weftline.models.sql import UsageStore, tenants_to_prune_usage, tenants_to_roll_up
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.insight.alerts.service import EvaluationRound
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.models.metering import UsageEntry
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector


# Roll-up of usage entries by minute, hour and day, and retention of both.

ROLL_UP = "usage.roll_up"
PRUNE_USAGE = "usage.prune"
ROLL_UP_EVERY_SECONDS = 10.0
# Of one transaction: others do not wait for it.
_ENTRIES = 200
_ROWS = 500


class UsageRollup:
    """Adds new entries to the roll-ups of their tenants. A row lock keeps processes from adding an entry twice.

    ``count`` gets the entries that were added, each once over all processes.
    """

    def __init__(
        self, database: Database, clock: Clock, injector: Injector, count: Callable[[Sequence[UsageEntry]], None]
    ) -> None:
        self._database = database
        self._clock = clock
        self._injector = injector
        self._count = count

    async def due(self, _queue: JobQueue) -> list[Work]:
        return [Work(tenant) for tenant in await self._database.read(SYSTEM, tenants_to_roll_up)]

    async def run(self, work: Work) -> bool:
        """Add the next entries; return whether there may be more."""
        added, more = await self._database.write(Scope(work.tenant), self._roll_up)
        self._count(added)
        return more

    async def _roll_up(self, transaction: Transaction) -> tuple[Sequence[UsageEntry], bool]:
        usage = UsageStore(transaction)
        added = await usage.roll_up(_ENTRIES)
        return added, bool(added) and added[-1].seq < await usage.last_seq()

    async def prune_due(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants whose usage was not pruned today."""
        now = to_micros(self._clock.now())
        tenants = await self._database.read(SYSTEM, lambda tx: tenants_to_prune_usage(tx, now))
        return [Work(tenant) for tenant in tenants]

    async def prune(self, work: Work) -> bool:
        """Delete some of what is past the retention of the tenant's plan; return whether there may be more."""
        return await self._database.write(Scope(work.tenant), self._prune)

    async def _prune(self, transaction: Transaction) -> bool:
        plans = self._injector.build(Plans, system_actor(transaction.tenant), transaction)
        allowed = await plans.allowance()
        retention = Retention(allowed.minute_usage_days, allowed.hour_usage_days, allowed.daily_usage_days)
        return await UsageStore(transaction).prune(to_micros(self._clock.now()), retention, _ROWS)


# Evaluates alerts after new calls, and removes old ones.
#
# A round reads without a lock and writes what has changed with its cursor in one transaction, so that a process that
# is killed repeats its round and changes nothing twice.

EVALUATE_ALERTS = "alerts.evaluate"
PRUNE_ALERTS = "alerts.prune"
EVALUATE_EVERY_SECONDS = 15.0
CONCURRENT_EVALUATIONS = 2
_BATCH = 200


class AlertJob:
    """Evaluates and removes the alerts of all tenants; one process at a time does it for a tenant."""

    def __init__(self, runner: LeaseRunner, injector: Injector) -> None:
        self._runner = runner
        self._evaluations = SystemTransactions(runner.database, injector, AlertEvaluation)

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants with calls that were not looked at."""
        tenants = await self._runner.database.read(SYSTEM, lambda tx: tenants_with_new_calls(tx, EVALUATE_ALERTS))
        return [Work(tenant) for tenant in tenants]

    async def evaluate(self, work: Work) -> None:
        await self._runner.run(work.tenant, EVALUATE_ALERTS, self._evaluate)

    async def due_to_prune(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants with alerts that are past retention, about silent agents, or of past periods."""
        now = self._runner.now
        find = partial(
            tenants_with_old_alerts,
            resolved_before=now - KEEP_MICROS,
            seen_before=now - STALE_MICROS,
            day=period_start("day", now),
            month=period_start("month", now),
        )
        return [Work(tenant) for tenant in await self._runner.database.read(SYSTEM, find)]

    async def prune(self, work: Work) -> bool:
        """Resolve stale alerts and delete old ones; return whether there may be more."""
        return await self._evaluations.write(work.tenant, self._prune)

    async def _evaluate(self, lease: Lease) -> None:
        loop = asyncio.get_running_loop()
        has_more = True
        while has_more:
            started = loop.time()
            found = await lease.read(self._look, heavy=True)
            await lease.write(partial(self._apply, found))
            has_more = found.has_more
            await lease.rest(started)

    async def _look(self, transaction: Transaction) -> EvaluationRound:
        progress = await JobStore(transaction).progress(EVALUATE_ALERTS)
        cursor = 0 if progress is None else int(progress.cursor or 0)
        return await self._evaluations.within(transaction).look(cursor)

    async def _apply(self, found: EvaluationRound, transaction: Transaction) -> None:
        await JobStore(transaction).save(EVALUATE_ALERTS, Progress(str(found.seq)))
        await self._evaluations.within(transaction).apply(found.changes)

    async def _prune(self, evaluation: AlertEvaluation) -> bool:
        stale = await evaluation.resolve_stale(_BATCH)
        old = await evaluation.alerts.store.prune(self._runner.now - KEEP_MICROS, _BATCH)
        return max(stale, old) == _BATCH
