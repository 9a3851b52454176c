"""Roll-up of usage entries by minute, hour and day, and retention of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.access.plans.service import Plans
from weftline.jobs.scheduler import Work
from weftline.kernel.clock import to_micros
from weftline.kernel.identity import system_actor
from weftline.models.metering.queries import Retention
from weftline.models.metering.sql import UsageStore, tenants_to_prune_usage, tenants_to_roll_up
from weftline.storage.sql.database import SYSTEM, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.models.metering.model import UsageEntry
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector

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
