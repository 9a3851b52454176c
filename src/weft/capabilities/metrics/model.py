"""Performance figures: what is measured, and who measures it.

A figure that cannot be measured is null; none is estimated from anything but measurements.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple, Protocol

import msgspec

from weft.kernel.identity import Actor
from weft.kernel.operation import Response


class Trend(StrEnum):
    """Which way a figure goes; unknown until there is enough to compare."""

    INCREASING = "increasing"
    DECREASING = "decreasing"
    STABLE = "stable"
    UNKNOWN = "unknown"


class ConnectionStats(Response, omit_defaults=False):
    """What this process did in the database since it started."""

    total_connections: Annotated[int, msgspec.Meta(description="Opened since the start.")]
    active_connections: Annotated[int, msgspec.Meta(description="In use at this moment.")]
    peak_connections: Annotated[int, msgspec.Meta(description="The most in use at once.")]
    total_queries: Annotated[int, msgspec.Meta(description="Statements run; begin and commit are not counted.")]
    avg_query_time: Annotated[
        float | None,
        msgspec.Meta(description="Milliseconds a transaction took from begin to end, on average over all."),
    ]
    slow_queries: Annotated[int, msgspec.Meta(description="Transactions that took over 50 ms.")]
    connection_errors: Annotated[int, msgspec.Meta(description="Transactions that could not reach the database.")]


class PoolStats(Response, omit_defaults=False):
    """The connections that this process holds open for transactions."""

    pool_size: Annotated[int, msgspec.Meta(description="Open now.")]
    available_connections: Annotated[int, msgspec.Meta(description="Open and idle.")]
    checked_out_connections: Annotated[int, msgspec.Meta(description="In a transaction.")]
    pool_utilization: Annotated[float | None, msgspec.Meta(description="The share in a transaction, 0 to 1.")]
    wait_time_avg: Annotated[
        float | None,
        msgspec.Meta(description="Milliseconds a transaction waited for its connection; on SQLite, a write its turn."),
    ]


class CacheStats(Response, omit_defaults=False):
    """The caches of this process, all together."""

    cached_queries: Annotated[int, msgspec.Meta(description="Answers held in all caches.")]
    l1_cache_size: Annotated[int, msgspec.Meta(description="Answers held in caches of the first level.")]
    l2_cache_size: Annotated[int, msgspec.Meta(description="Answers held in caches of the second level.")]
    cache_hit_ratio: Annotated[float | None, msgspec.Meta(description="Hits by lookups, 0 to 1; null before any.")]
    cache_misses: Annotated[int, msgspec.Meta(description="Lookups that found nothing fresh.")]
    evictions: Annotated[int, msgspec.Meta(description="Answers dropped to make room.")]


class DatabasePerformance(Response, omit_defaults=False):
    """The database as this process sees it."""

    connection_stats: ConnectionStats
    pool_stats: PoolStats
    cache_stats: CacheStats


class SystemInfo(Response, omit_defaults=False):
    """How the database is reached."""

    pool_initialized: bool
    database_url: Annotated[str, msgspec.Meta(description="The file's name, or host and database; no credentials.")]
    min_pool_size: int
    max_pool_size: Annotated[int | None, msgspec.Meta(description="Null where nothing limits it.")]
    connection_timeout: Annotated[
        float, msgspec.Meta(description="Seconds a connection may take to open; on SQLite, to get a lock.")
    ]


class SystemPerformance(Response, omit_defaults=False):
    """The process, and what your tenant does in it."""

    memory_usage_mb: Annotated[
        float | None,
        msgspec.Meta(description="Resident memory of the process in MiB; its peak where only that is known."),
    ]
    cpu_usage_percent: Annotated[
        float | None,
        msgspec.Meta(description="CPU time by elapsed time of the process, lately; over 100 on several cores."),
    ]
    active_sessions: Annotated[int, msgspec.Meta(description="Your tenant's sessions in use, last 5 minutes.")]
    active_agents: Annotated[int, msgspec.Meta(description="Your tenant's callers, last 5 minutes.")]
    messages_per_second: Annotated[float | None, msgspec.Meta(description="Your tenant's messages, last minute.")]
    search_operations_per_minute: Annotated[
        int | None, msgspec.Meta(description="Your tenant's searches, last minute.")
    ]


class PerformanceTrends(Response, omit_defaults=False):
    """The last hour against the time before, up to a day."""

    response_time_trend: Trend
    throughput_trend: Trend
    error_rate_trend: Trend
    cache_efficiency_trend: Annotated[Trend, msgspec.Meta(description="Of the whole process.")]


class OperationFigures(Response, omit_defaults=False):
    """Your tenant's calls of one operation. Percentiles are read off a histogram, so they are near, not exact."""

    calls: int
    errors: Annotated[int, msgspec.Meta(description="Calls that ended with an error of any kind.")]
    p50_ms: float
    p95_ms: float
    p99_ms: float


class Figures(Response, omit_defaults=False):
    """Everything that is measured."""

    database_performance: DatabasePerformance
    system_info: SystemInfo
    system_performance: SystemPerformance
    performance_trends: PerformanceTrends
    operations: Annotated[dict[str, OperationFigures], msgspec.Meta(description="Your tenant's calls, by operation.")]
    measured_since: Annotated[datetime, msgspec.Meta(description="Since when your tenant's calls are counted here.")]


class DatabaseFigures(NamedTuple):
    """What a database can tell of itself."""

    connection_stats: ConnectionStats
    pool_stats: PoolStats
    system_info: SystemInfo


class Measurements(Protocol):
    """Where the figures come from."""

    async def take(self, actor: Actor) -> Figures:
        """Return the figures of this process, and of calls made in the caller's tenant alone."""
        ...
