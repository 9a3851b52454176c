"""Performance metrics of the process and of a tenant's calls."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from operator import add, sub
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import asdict

from weftline.kernel.clock import Clock
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# Metric history: totals of intervals of five minutes, over all processes, and their hourly form for admins.

BUCKET_SECONDS = 300
RETENTION_HOURS = 24
_HOUR = 3_600


class MetricTotals(NamedTuple):
    """Monotonic counters: of a tenant's calls, and of the caches and transactions of a process.

    Calls that wait for events are not ``timed``. ``queries`` are transactions.
    """

    calls: int = 0
    errors: int = 0
    timed: int = 0
    seconds: float = 0.0
    messages: int = 0
    searches: int = 0
    lookups: int = 0
    hits: int = 0
    queries: int = 0
    query_seconds: float = 0.0

    def plus(self, other: MetricTotals) -> MetricTotals:
        return MetricTotals(*map(add, self, other))

    def minus(self, earlier: MetricTotals) -> MetricTotals:
        return MetricTotals(*map(sub, self, earlier))


class MetricBucket(NamedTuple):
    """Totals of the interval that begins at ``start``, counted from ``first_at``; both in seconds since 1970."""

    start: int
    first_at: int
    totals: MetricTotals


class MetricRow(NamedTuple):
    """What one process counted in an interval for a tenant, or for itself if ``tenant`` is empty."""

    tenant: str
    bucket: MetricBucket


class HourMetrics(Response, omit_defaults=False):
    """One hour, over all server processes: your tenant's calls; for the operator, cache and database of the servers."""

    start: datetime
    calls: int
    errors: Annotated[int, msgspec.Meta(description="Calls that failed.")]
    avg_response_time: Annotated[float | None, msgspec.Meta(description="Mean duration of a call in milliseconds.")]
    messages: Annotated[int, msgspec.Meta(description="Messages that were added.")]
    searches: int
    cache_hit_ratio: Annotated[
        float | None,
        msgspec.Meta(description="Hits divided by lookups, of the servers. Null outside the operator's tenant."),
    ]
    avg_query_time: Annotated[
        float | None,
        msgspec.Meta(
            description="Mean duration of a transaction in milliseconds, of the servers. Null outside the operator's "
            "tenant."
        ),
    ]


def by_hour(buckets: Iterable[MetricBucket]) -> list[HourMetrics]:
    """Return the hours in which anything was counted, oldest first."""
    hours: dict[int, MetricTotals] = {}
    for bucket in buckets:
        hour = bucket.start // _HOUR
        hours[hour] = hours.get(hour, MetricTotals()).plus(bucket.totals)
    return [_hour(hour * _HOUR, hours[hour]) for hour in sorted(hours)]


def _hour(start: int, totals: MetricTotals) -> HourMetrics:
    return HourMetrics(
        start=datetime.fromtimestamp(start, UTC),
        calls=totals.calls,
        errors=totals.errors,
        avg_response_time=_milliseconds(totals.seconds, totals.timed),
        messages=totals.messages,
        searches=totals.searches,
        cache_hit_ratio=round(totals.hits / totals.lookups, 3) if totals.lookups else None,
        avg_query_time=_milliseconds(totals.query_seconds, totals.queries),
    )


def _milliseconds(seconds: float, times: int) -> float | None:
    return round(seconds / times * 1_000, 3) if times else None


# The performance report and the port that measures it. A figure that cannot be measured is null, never estimated.


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


# Metric history in SQL.

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


# Reading the performance report. It is not cached: computing it costs less than sending it.

COLLECTION_INTERVAL = 30


class ReadPerformance(Request):
    """How much history to return."""

    history_hours: Annotated[
        int,
        msgspec.Meta(ge=0, le=RETENTION_HOURS, description="Hours of history to return, one entry each; 0: none."),
    ] = 0


class PerformanceTargets(Response, omit_defaults=False):
    """The specified performance targets."""

    session_creation: str = "< 10ms"
    message_insertion: str = "< 20ms"
    message_retrieval_50: str = "< 30ms"
    fuzzy_search_1000: str = "< 100ms"
    concurrent_agents: str = "20+"
    cache_hit_ratio: str = "> 70%"


class ResourceInfo(Response, omit_defaults=False):
    """How the figures are collected."""

    collection_interval: int = COLLECTION_INTERVAL
    retention_hours: int = RETENTION_HOURS
    supports_subscriptions: bool = True
    admin_only: bool = True


class Performance(MetricsReport, kw_only=True, omit_defaults=False):
    """Figures of your tenant's calls, and for the operator those of the server process."""

    success: Literal[True] = True
    timestamp: datetime
    performance_targets: PerformanceTargets = PerformanceTargets()
    requesting_agent: str
    resource_info: ResourceInfo = ResourceInfo()


@operation(
    "performance.read",
    tool="get_performance_metrics",
    http="GET /v1/performance",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.OWN_TRANSACTIONS,
    session=SessionUse.OUTSIDE,
)
async def read_performance(
    request: ReadPerformance, actor: Actor, measurements: MetricsSource, clock: Clock
) -> Performance:
    """Get performance figures: database, memory, CPU, caches, calls and trends.

    Calls, sessions, agents and caches are those of your tenant only. Memory, CPU and connections are those of the
    answering process, for the operator's tenant (the default one, or the only one); for others they are null, because
    they would show what other tenants do. History and trends cover all server processes and survive restarts. A figure
    that cannot be measured is null.
    """
    figures = await measurements.take(actor, request.history_hours)
    return Performance(**asdict(figures), timestamp=clock.now(), requesting_agent=actor.principal_id)
