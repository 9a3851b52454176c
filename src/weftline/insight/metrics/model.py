"""The performance report and the port that measures it. A figure that cannot be measured is null, never estimated."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple, Protocol

import msgspec

from weftline.insight.metrics.history import HourMetrics
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Response


class Trend(StrEnum):
    """The direction of a figure; unknown until there is enough data."""

    INCREASING = "increasing"
    DECREASING = "decreasing"
    STABLE = "stable"
    UNKNOWN = "unknown"


class ConnectionStats(Response, omit_defaults=False):
    """Database connections and queries of this process since it started."""

    total_connections: Annotated[int, msgspec.Meta(description="Opened since the start.")]
    active_connections: Annotated[int, msgspec.Meta(description="In use now.")]
    peak_connections: Annotated[int, msgspec.Meta(description="The most in use at once.")]
    total_queries: Annotated[int, msgspec.Meta(description="Statements run; begin and commit are not counted.")]
    avg_query_time: Annotated[
        float | None,
        msgspec.Meta(description="Mean duration of a transaction in milliseconds."),
    ]
    slow_queries: Annotated[int, msgspec.Meta(description="Transactions that took over 50 ms.")]
    connection_errors: Annotated[int, msgspec.Meta(description="Transactions that could not reach the database.")]


class PoolStats(Response, omit_defaults=False):
    """The connection pool of this process."""

    pool_size: Annotated[int, msgspec.Meta(description="Open now.")]
    available_connections: Annotated[int, msgspec.Meta(description="Open and idle.")]
    checked_out_connections: Annotated[int, msgspec.Meta(description="In a transaction.")]
    pool_utilization: Annotated[float | None, msgspec.Meta(description="The share in a transaction, 0 to 1.")]
    wait_time_avg: Annotated[
        float | None,
        msgspec.Meta(description="Mean wait for a connection in milliseconds; on SQLite, for the writer."),
    ]


class CacheStats(Response, omit_defaults=False):
    """Your tenant's entries and lookups in the caches of this process, all caches together."""

    cached_queries: Annotated[int, msgspec.Meta(description="Entries in all caches.")]
    l1_cache_size: Annotated[int, msgspec.Meta(description="Entries in first-level caches.")]
    l2_cache_size: Annotated[int, msgspec.Meta(description="Entries in second-level caches.")]
    cache_hit_ratio: Annotated[
        float | None, msgspec.Meta(description="Hits divided by lookups, 0 to 1; null before the first.")
    ]
    cache_misses: Annotated[int, msgspec.Meta(description="Lookups without a valid entry.")]
    evictions: Annotated[int, msgspec.Meta(description="Entries dropped to make room.")]


class DatabasePerformance(Response, omit_defaults=False):
    """The database as this process sees it. What other tenants do would show in it, so most is for the operator."""

    connection_stats: Annotated[ConnectionStats | None, msgspec.Meta(description="Null outside the operator's tenant.")]
    pool_stats: Annotated[PoolStats | None, msgspec.Meta(description="Null outside the operator's tenant.")]
    cache_stats: CacheStats


class SystemInfo(Response, omit_defaults=False):
    """The database connection."""

    pool_initialized: bool
    database_url: Annotated[str, msgspec.Meta(description="The file's name, or host and database; no credentials.")]
    min_pool_size: int
    max_pool_size: Annotated[int | None, msgspec.Meta(description="Null if unlimited.")]
    connection_timeout: Annotated[
        float, msgspec.Meta(description="Seconds a connection may take to open; on SQLite, to get a lock.")
    ]


class SystemPerformance(Response, omit_defaults=False):
    """The process, and your tenant's activity in it."""

    memory_usage_mb: Annotated[
        float | None,
        msgspec.Meta(
            description="Resident memory of the process in MiB; the peak on systems that report only that. "
            "Null outside the operator's tenant."
        ),
    ]
    cpu_usage_percent: Annotated[
        float | None,
        msgspec.Meta(
            description="Recent CPU use of the process; above 100 on several cores. Null outside the operator's tenant."
        ),
    ]
    active_sessions: Annotated[int, msgspec.Meta(description="Your tenant's sessions in use, last 5 minutes.")]
    active_agents: Annotated[int, msgspec.Meta(description="Your tenant's callers, last 5 minutes.")]
    messages_per_second: Annotated[float | None, msgspec.Meta(description="Your tenant's messages, last minute.")]
    search_operations_per_minute: Annotated[
        int | None, msgspec.Meta(description="Your tenant's searches, last minute.")
    ]


class PerformanceTrends(Response, omit_defaults=False):
    """The last hour compared with up to 24 hours before, over all server processes."""

    response_time_trend: Trend
    throughput_trend: Trend
    error_rate_trend: Trend
    cache_efficiency_trend: Annotated[
        Trend, msgspec.Meta(description="Of the servers; unknown outside the operator's tenant.")
    ]


class OperationMetrics(Response, omit_defaults=False):
    """Your tenant's calls of one operation. Percentiles come from a histogram and are approximate."""

    calls: int
    errors: Annotated[int, msgspec.Meta(description="Calls that failed.")]
    p50_ms: float
    p95_ms: float
    p99_ms: float


class ChatModelMetrics(Response, omit_defaults=False):
    """Calls of Weftline's own language model for your tenant, in this process."""

    calls: Annotated[int, msgspec.Meta(description="Each with all its attempts.")]
    errors: Annotated[int, msgspec.Meta(description="Calls without a usable answer.")]
    seconds: Annotated[float, msgspec.Meta(description="Time of all calls together.")]
    input_tokens: int
    cached_tokens: Annotated[int, msgspec.Meta(description="The input tokens that were read from a cache.")]
    output_tokens: int


class JobFigures(Response, omit_defaults=False):
    """Work of one background job, in this process."""

    name: str
    running: int
    ready: Annotated[int, msgspec.Meta(description="Due, and waiting for its turn.")]
    failing: Annotated[int, msgspec.Meta(description="Failed the last time; it is tried again.")]


class BackgroundWork(Response, omit_defaults=False):
    """What is done in the background for your tenant; for the operator, the jobs of all tenants."""

    index_lag_events: Annotated[int, msgspec.Meta(description="Events of your tenant that are not searchable yet.")]
    jobs: Annotated[list[JobFigures], msgspec.Meta(description="Jobs with work, by name.")]


class MetricsReport(Response, omit_defaults=False):
    """All performance figures."""

    database_performance: DatabasePerformance
    system_info: SystemInfo
    system_performance: SystemPerformance
    performance_trends: PerformanceTrends
    operations: Annotated[dict[str, OperationMetrics], msgspec.Meta(description="Your tenant's calls, by operation.")]
    chat_model: Annotated[
        ChatModelMetrics, msgspec.Meta(description="Calls of the language model that Weftline uses for summaries.")
    ]
    background: Annotated[BackgroundWork, msgspec.Meta(description="Index lag and background jobs.")]
    measured_since: Annotated[datetime, msgspec.Meta(description="Start of counting for your tenant in this process.")]
    history: Annotated[
        list[HourMetrics], msgspec.Meta(description="Hours in which anything was counted, oldest first, if asked for.")
    ]


class DatabaseMetrics(NamedTuple):
    """Figures that the database driver reports."""

    connection_stats: ConnectionStats
    pool_stats: PoolStats
    system_info: SystemInfo


class MetricsSource(Protocol):
    """Measures the process and a tenant's calls."""

    async def take(self, actor: Actor, history_hours: int = 0) -> MetricsReport:
        """Return figures of the calls of the caller's tenant, and the hours of history.

        Figures of the process, of all tenants together, are for the operator's tenant only.
        """
        ...
