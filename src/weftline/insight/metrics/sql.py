"""Metric history in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.insight.metrics.history import MetricBucket, MetricRow, MetricTotals
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS = MetricTotals._fields
_VALUES = ", ".join(f"${place}" for place in range(1, len(_COLUMNS) + 5))
_ADD = f"""
INSERT INTO metric_history (tenant, bucket, process, first_at, {", ".join(_COLUMNS)}) VALUES ({_VALUES})
ON CONFLICT (tenant, bucket, process) DO UPDATE SET
    {", ".join(f"{name} = metric_history.{name} + excluded.{name}" for name in _COLUMNS)}
"""  # noqa: S608 - our own SQL
_SINCE = f"""
SELECT bucket, MIN(first_at), {", ".join(f"SUM({name})" for name in _COLUMNS)} FROM metric_history
WHERE tenant = $1 AND bucket >= $2 GROUP BY bucket ORDER BY bucket
"""  # noqa: S608 - our own SQL


class MetricHistoryStore(SqlStore):
    """Metric history of the installation."""

    async def add(self, process: str, rows: Sequence[MetricRow]) -> None:
        """Add to what a process has counted."""
        await self._tx.many(_ADD, [(tenant, at.start, process, at.first_at, *at.totals) for tenant, at in sorted(rows)])

    async def since(self, tenant: str, start: int) -> Sequence[MetricBucket]:
        """Return the intervals of a tenant from a start on, summed over all processes, oldest first."""
        rows = await self._tx.all(_SINCE, tenant, start)
        return [MetricBucket(bucket, first_at, _totals(sums)) for bucket, first_at, *sums in rows]

    async def forget_before(self, start: int) -> None:
        """Delete the intervals of all tenants that began before ``start``."""
        await self._tx.run("DELETE FROM metric_history WHERE bucket < $1", start)


def _totals(sums: Sequence[Any]) -> MetricTotals:
    # PostgreSQL returns sums of integers as decimal numbers.
    return MetricTotals(*(float(each) if isinstance(each, float) else int(each) for each in sums))  # type: ignore[arg-type]
