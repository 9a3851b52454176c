"""Tenants in SQL, and the queries of upkeep across all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from weftline.access.model import DEFAULT_TENANT
from weftline.insight.metrics import ConnectionStats, DatabaseMetrics, PoolStats, SystemInfo

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction


_OPERATOR_TENANT = "SELECT tenant FROM tenants ORDER BY CASE WHEN tenant = $1 THEN 0 ELSE 1 END, tenant LIMIT 2"

_PROBLEMS = """
SELECT (SELECT COUNT(*) FROM alerts a WHERE a.tenant = t.tenant AND a.state <> 'resolved' AND a.digest_id IS NULL),
       (SELECT COUNT(*) FROM documents d WHERE d.tenant = t.tenant AND d.state = 'failed'),
       (SELECT COUNT(*) FROM webhook_deliveries w WHERE w.tenant = t.tenant AND w.state = 'dead' AND w.seq > 0)
FROM tenants t WHERE t.tenant = $1
"""


class ProblemCounts(NamedTuple):
    """What needs attention in a tenant: active alerts, documents that failed, deliveries that were given up."""

    active_alerts: int = 0
    failed_documents: int = 0
    dead_deliveries: int = 0


async def add_tenant(transaction: Transaction, tenant: str, now: int) -> bool:
    """Add a tenant; False if the name is in use."""
    row = await transaction.one(
        "INSERT INTO tenants (tenant, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1", tenant, now
    )
    return row is not None


async def tenant_names(transaction: Transaction) -> list[str]:
    return [row[0] for row in await transaction.all("SELECT tenant FROM tenants ORDER BY tenant")]


async def problem_counts(transaction: Transaction) -> ProblemCounts:
    row = await transaction.one(_PROBLEMS, transaction.tenant)
    return ProblemCounts() if row is None else ProblemCounts(*map(int, row))


async def operator_tenant(transaction: Transaction) -> str | None:
    """Return the tenant whose audit log has calls that name no tenant: the default one, or the only one."""
    rows = await transaction.all(_OPERATOR_TENANT, DEFAULT_TENANT)
    names = [row[0] for row in rows]
    return names[0] if len(names) == 1 or DEFAULT_TENANT in names else None


async def tenants_to_sweep(transaction: Transaction) -> list[str]:
    """Return the tenants with values that may be unreferenced."""
    return [row[0] for row in await transaction.all("SELECT DISTINCT tenant FROM doubtful_blobs")]


async def tenants_to_expire(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants with expired keys."""
    rows = await transaction.all("SELECT DISTINCT tenant FROM lines WHERE next_expiry_at <= $1", now)
    return [row[0] for row in rows]


async def lines_to_expire(transaction: Transaction, now: int, limit: int) -> list[str]:
    """Return the lines of a tenant with expired keys, longest overdue first."""
    rows = await transaction.all(
        "SELECT line_id FROM lines WHERE tenant = $1 AND next_expiry_at <= $2 ORDER BY next_expiry_at LIMIT $3",
        transaction.tenant,
        now,
        limit,
    )
    return [row[0] for row in rows]


# Counters of statements, transactions and connections.

_SLOW_SECONDS = 0.05


@dataclass(slots=True)
class StorageUsage:
    """Running totals. Each is written by one thread only, so no counter needs a lock."""

    statements: int = 0
    transactions: int = 0
    seconds: float = 0.0
    slow: int = 0
    unreachable: int = 0
    waits: int = 0
    waited_seconds: float = 0.0
    peak: int = 0

    def began(self, in_use: int) -> None:
        """Update the peak of connections in use."""
        if in_use > self.peak:  # noqa: PLR1730 - max() costs several times as much
            self.peak = in_use

    def ended(self, seconds: float) -> None:
        """Count a transaction and its duration."""
        self.transactions += 1
        self.seconds += seconds
        if seconds > _SLOW_SECONDS:
            self.slow += 1

    def waited(self, seconds: float, times: int = 1) -> None:
        """Count waits for a connection and their total duration."""
        self.waits += times
        self.waited_seconds += seconds

    def __add__(self, other: StorageUsage) -> StorageUsage:
        return StorageUsage(
            self.statements + other.statements,
            self.transactions + other.transactions,
            self.seconds + other.seconds,
            self.slow + other.slow,
            self.unreachable + other.unreachable,
            self.waits + other.waits,
            self.waited_seconds + other.waited_seconds,
            max(self.peak, other.peak),
        )


class Connections(NamedTuple):
    """Connections opened in total, open now, and in use."""

    opened: int
    open: int
    in_use: int


def database_figures(usage: StorageUsage, connections: Connections, info: SystemInfo) -> DatabaseMetrics:
    """Convert the counters to the metrics report."""
    return DatabaseMetrics(
        ConnectionStats(
            total_connections=connections.opened,
            active_connections=connections.in_use,
            peak_connections=usage.peak,
            total_queries=usage.statements,
            avg_query_time=_average_milliseconds(usage.seconds, usage.transactions),
            slow_queries=usage.slow,
            connection_errors=usage.unreachable,
        ),
        PoolStats(
            pool_size=connections.open,
            available_connections=connections.open - connections.in_use,
            checked_out_connections=connections.in_use,
            pool_utilization=round(connections.in_use / connections.open, 3) if connections.open else None,
            wait_time_avg=_average_milliseconds(usage.waited_seconds, usage.waits),
        ),
        info,
    )


def _average_milliseconds(seconds: float, times: int) -> float | None:
    return round(seconds / times * 1_000, 3) if times else None
