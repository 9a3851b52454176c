"""Performance report of this process, built on request, and the metric history, written in the background."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from weftline.app.metrics import (
    Sample,
    cache_efficiency_trend,
    error_rate_trend,
    halves,
    response_time_trend,
    throughput_trend,
)
from weftline.insight.metrics import (
    BUCKET_SECONDS,
    RETENTION_HOURS,
    BackgroundWork,
    DatabasePerformance,
    MetricBucket,
    MetricHistoryStore,
    MetricRow,
    MetricsReport,
    MetricTotals,
    PerformanceTrends,
    SystemPerformance,
    by_hour,
)
from weftline.kernel.fields import new_id
from weftline.models.metering import UsageQuery, UsageSums
from weftline.models.sql import UsageStore
from weftline.storage.sql.database import SYSTEM, caller_scope
from weftline.storage.sql.session_index import events_pending
from weftline.storage.sql.tenants import operator_tenant, problem_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from weftline.app.caches import CacheRegistry
    from weftline.app.event_feed import Subscribers
    from weftline.app.metrics import Metrics, TenantCalls
    from weftline.insight.metrics import JobFigures
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.tenants import ProblemCounts


_MINUTE = 60.0
_HOUR = 3_600
# Rows of the process itself.
_PROCESS = ""
_MEBIBYTE = 1_048_576
_STATM = Path("/proc/self/statm")


class MetricsSnapshot:
    """Builds performance reports, and adds what this process counted to the metric history."""

    def __init__(
        self,
        database: Database,
        metrics: Metrics,
        caches: CacheRegistry,
        clock: Clock,
        jobs: Callable[[str | None], list[JobFigures]],
    ) -> None:
        self._jobs = jobs
        self._database = database
        self._metrics = metrics
        self._caches = caches
        self._clock = clock
        self._cpu = _CpuMeter()
        self._process = new_id("process")
        self._written = self._of_process()
        self._written_at = self._now()
        self._forgotten_at = 0
        # Held while counts move from memory to the history, so that a reader sees each exactly once.
        self._writing = asyncio.Lock()

    async def collect(self) -> None:
        """Take a sample and write the history, as a background job."""
        self.sample()
        await self.write_history()

    def sample(self) -> None:
        self._metrics.sample()
        self._cpu.mark()

    async def write_history(self) -> None:
        """Add what was counted since the last time; writes nothing if there were no calls and no lookups."""
        async with self._writing:
            rows, now, tenants = self.unwritten(), self._now(), dict(self._metrics.by_tenant())
            if rows:
                await self._database.write(SYSTEM, lambda tx: MetricHistoryStore(tx).add(self._process, rows))
            self.mark_written(rows, tenants, now)
        if now - self._forgotten_at > _HOUR:
            self._forgotten_at = now
            await self._database.write(SYSTEM, lambda tx: MetricHistoryStore(tx).forget_before(_oldest(now)))

    def unwritten(self) -> list[MetricRow]:
        """Return what was counted since the last write, for each tenant and for the process."""
        start = self._written_at - self._written_at % BUCKET_SECONDS
        counted = [(tenant, calls.totals().minus(calls.written)) for tenant, calls in self._metrics.by_tenant()]
        of_process = self._of_process().minus(self._written)
        if of_process.lookups or any(totals.calls for _, totals in counted):
            counted.append((_PROCESS, of_process))
        return [
            MetricRow(tenant, MetricBucket(start, self._written_at, totals))
            for tenant, totals in counted
            if totals.calls or tenant == _PROCESS
        ]

    def mark_written(self, rows: Iterable[MetricRow], tenants: Mapping[str, TenantCalls], now: int) -> None:
        """Note that rows are in the history; ``tenants`` are those that the rows were taken from."""
        for tenant, bucket in rows:
            if tenant == _PROCESS:
                self._written = self._written.plus(bucket.totals)
            else:
                tenants[tenant].written = tenants[tenant].written.plus(bucket.totals)
        self._written_at = now

    async def take(self, actor: Actor, history_hours: int = 0) -> MetricsReport:
        now = self._now()
        calls = self._metrics.of_tenant(actor.tenant)
        is_operator, of_tenant, of_servers = await self._history(actor, now)
        index_lag = await self._database.read(caller_scope(actor), events_pending)
        database = self._database.figures()
        shown_from = now - history_hours * _HOUR
        shown = [each for each in (*of_tenant, *of_servers) if history_hours and each.start >= shown_from]
        return MetricsReport(
            database_performance=DatabasePerformance(
                connection_stats=database.connection_stats if is_operator else None,
                pool_stats=database.pool_stats if is_operator else None,
                cache_stats=self._caches.stats(actor.tenant),
            ),
            system_info=database.system_info,
            system_performance=self.system_performance(calls, self._clock.now().timestamp(), is_operator=is_operator),
            performance_trends=trends(of_tenant, of_servers, now),
            operations={name: operation.figures() for name, operation in sorted(calls.operations.items())},
            chat_model=calls.chat_model.figures(),
            background=BackgroundWork(
                index_lag_events=index_lag, jobs=self._jobs(None if is_operator else actor.tenant)
            ),
            measured_since=calls.since,
            history=by_hour(shown),
        )

    async def _history(self, actor: Actor, now: int) -> tuple[bool, list[MetricBucket], list[MetricBucket]]:
        """Return whether the caller is an operator, and the intervals of its tenant and, for an operator, of servers.

        With what this process has not written yet.
        """
        oldest, tenant = _oldest(now), actor.tenant
        async with self._writing:
            # Fails if the actor's access has changed since it was identified.
            written = await self._database.read(
                caller_scope(actor), lambda tx: MetricHistoryStore(tx).since(tenant, oldest)
            )
            is_operator = await self._database.read(SYSTEM, operator_tenant) == tenant
            unwritten, servers = self.unwritten(), []
            if is_operator:
                of_servers = await self._database.read(
                    SYSTEM, lambda tx: MetricHistoryStore(tx).since(_PROCESS, oldest)
                )
                servers = merged(of_servers, unwritten, _PROCESS)
        return is_operator, merged(written, unwritten, tenant), servers

    def system_performance(self, calls: TenantCalls, now: float, *, is_operator: bool) -> SystemPerformance:
        lately = calls.series.since(_MINUTE, Sample(now, calls.totals()))
        memory = _memory_bytes() if is_operator else None
        return SystemPerformance(
            memory_usage_mb=None if memory is None else round(memory / _MEBIBYTE, 1),
            cpu_usage_percent=self._cpu.percent() if is_operator else None,
            active_sessions=calls.sessions.count(now),
            active_agents=calls.agents.count(now),
            messages_per_second=round(lately.totals.messages / lately.seconds, 3) if lately.seconds else None,
            search_operations_per_minute=(
                round(lately.totals.searches / lately.seconds * _MINUTE) if lately.seconds else None
            ),
        )

    def _of_process(self) -> MetricTotals:
        queries, seconds = self._database.query_totals()
        return self._caches.totals()._replace(queries=queries, query_seconds=seconds)

    def _now(self) -> int:
        return int(self._clock.now().timestamp())


def merged(written: Iterable[MetricBucket], unwritten: Iterable[MetricRow], tenant: str) -> list[MetricBucket]:
    """Return the intervals in the history with what is not written yet, oldest first."""
    buckets = {bucket.start: bucket for bucket in written}
    for row in unwritten:
        if row.tenant == tenant:
            known = buckets.get(row.bucket.start, row.bucket._replace(totals=MetricTotals()))
            buckets[known.start] = known._replace(totals=known.totals.plus(row.bucket.totals))
    return [buckets[start] for start in sorted(buckets)]


def trends(of_tenant: Sequence[MetricBucket], of_servers: Sequence[MetricBucket], now: float) -> PerformanceTrends:
    """Return the trends of a tenant's calls and of all caches, over all processes."""
    calls = halves(of_tenant, now)
    return PerformanceTrends(
        response_time_trend=response_time_trend(calls),
        throughput_trend=throughput_trend(calls),
        error_rate_trend=error_rate_trend(calls),
        cache_efficiency_trend=cache_efficiency_trend(halves(of_servers, now)),
    )


def _oldest(now: int) -> int:
    return now - RETENTION_HOURS * _HOUR


class _Mark(NamedTuple):
    """Elapsed time and CPU time of the process at one point, from the machine's own clocks."""

    elapsed: float
    used: float


class _CpuMeter:
    """Measures CPU use over the last full interval plus the current partial one."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque([_now_used()], maxlen=2)

    def mark(self) -> None:
        self._marks.append(_now_used())

    def percent(self) -> float | None:
        first, now = self._marks[0], _now_used()
        elapsed = now.elapsed - first.elapsed
        return round((now.used - first.used) / elapsed * 100, 1) if elapsed > 0 else None


def _now_used() -> _Mark:
    return _Mark(time.perf_counter(), time.process_time())


def _memory_bytes() -> int | None:
    """Return the resident memory; outside Linux the peak, or None."""
    with suppress(OSError):
        return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return _peak_memory_bytes()


def _peak_memory_bytes() -> int | None:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# Figures of the process for Prometheus: database, caches, subscribers, memory and CPU.
#
# They cover all tenants together, so they are for the operator only.


class ProcessFigures(Collector):
    """Reads the counters of the process when Prometheus asks."""

    def __init__(self, database: Database, caches: CacheRegistry, subscribers: Subscribers) -> None:
        self._database = database
        self._caches = caches
        self._subscribers = subscribers
        # Registered nowhere else: its figures are part of ours.
        self._process = ProcessCollector(registry=CollectorRegistry())

    def collect(self) -> Iterator[Metric]:
        yield from self._process.collect()
        yield from self._of_database()
        yield from self._of_caches()
        yield GaugeMetricFamily(
            "weftline_subscribers", "Open event streams, subscriptions and waiting calls", value=len(self._subscribers)
        )

    def _of_database(self) -> Iterator[Metric]:
        figures, (transactions, seconds) = self._database.figures(), self._database.query_totals()
        connections = GaugeMetricFamily(
            "weftline_database_connections", "Open connections by state: idle or in use", labels=["state"]
        )
        connections.add_metric(["idle"], figures.pool_stats.available_connections)
        connections.add_metric(["in_use"], figures.pool_stats.checked_out_connections)
        yield connections
        stats = figures.connection_stats
        for name, text, value in (
            ("weftline_database_statements", "Statements run; begin and commit are not counted", stats.total_queries),
            ("weftline_database_transactions", "Transactions", transactions),
            ("weftline_database_transaction_seconds", "Time of all transactions together", seconds),
            ("weftline_database_slow_transactions", "Transactions that took over 50 ms", stats.slow_queries),
            ("weftline_database_errors", "Transactions that could not reach the database", stats.connection_errors),
        ):
            yield CounterMetricFamily(name, text, value=value)

    def _of_caches(self) -> Iterator[Metric]:
        entries = GaugeMetricFamily("weftline_cache_entries", "Entries by cache", labels=["cache"])
        lookups = CounterMetricFamily(
            "weftline_cache_lookups", "Lookups by cache and outcome", labels=["cache", "outcome"]
        )
        evictions = CounterMetricFamily("weftline_cache_evictions", "Entries dropped to make room", labels=["cache"])
        for cache in self._caches:
            counts = cache.counts()
            entries.add_metric([cache.name], counts.size)
            lookups.add_metric([cache.name, "hit"], counts.hits)
            lookups.add_metric([cache.name, "miss"], counts.misses)
            evictions.add_metric([cache.name], counts.evictions)
        yield from (entries, lookups, evictions)


# What each tenant of an installation uses, saves and costs, and how healthy it is: numbers only, no content.

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
