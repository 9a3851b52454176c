"""Counters of statements, transactions and connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from weftline.insight.metrics.model import ConnectionStats, DatabaseMetrics, PoolStats, SystemInfo

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
