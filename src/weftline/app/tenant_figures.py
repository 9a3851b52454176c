"""What each tenant of an installation uses, saves and costs, and how healthy it is: numbers only, no content."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.insight.metrics.history import RETENTION_HOURS, MetricTotals
from weftline.insight.metrics.sql import MetricHistoryStore
from weftline.models.metering.model import UsageSums
from weftline.models.metering.queries import UsageQuery
from weftline.models.metering.sql import UsageStore
from weftline.storage.sql.session_index import events_pending
from weftline.storage.sql.tenants import problem_counts

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.tenants import ProblemCounts

_MICROS = 1_000_000
_HOUR_SECONDS = 3_600


class TenantFigures(NamedTuple):
    """Figures of one tenant: sums of its model calls, its calls of the last day, and what needs attention."""

    tenant: str
    usage: UsageSums
    last_day: MetricTotals
    problems: ProblemCounts
    unindexed_events: int


async def tenant_figures(transaction: Transaction, since: int, now: int) -> TenantFigures:
    """Return the figures of the transaction's tenant; model calls from ``since`` on. Times are in microseconds."""
    usage = await UsageStore(transaction).totals(UsageQuery(since=since))
    day = await MetricHistoryStore(transaction).since(
        transaction.tenant, now // _MICROS - RETENTION_HOURS * _HOUR_SECONDS
    )
    last_day = MetricTotals()
    for bucket in day:
        last_day = last_day.plus(bucket.totals)
    return TenantFigures(
        transaction.tenant,
        usage.total,
        last_day,
        await problem_counts(transaction),
        await events_pending(transaction),
    )
