"""Performance report of this process, built on request; trends use samples taken in the background."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.app.dispatch import check_access
from weft.app.trends import (
    Sample,
    Series,
    cache_efficiency_trend,
    error_rate_trend,
    response_time_trend,
    throughput_trend,
)
from weft.capabilities.metrics.model import (
    DatabasePerformance,
    MetricsReport,
    PerformanceTrends,
    SystemPerformance,
)

if TYPE_CHECKING:
    from weft.app.caches import CacheRegistry
    from weft.app.metrics import Metrics, TenantCalls
    from weft.kernel.clock import Clock
    from weft.kernel.identity import Actor
    from weft.storage.sql.database import Database

_MINUTE = 60.0
_MEBIBYTE = 1_048_576
_STATM = Path("/proc/self/statm")


class MetricsSnapshot:
    """Builds performance reports."""

    def __init__(self, database: Database, metrics: Metrics, caches: CacheRegistry, clock: Clock) -> None:
        self._database = database
        self._metrics = metrics
        self._caches = caches
        self._clock = clock
        self._lookups = Series(Sample(clock.now().timestamp(), caches.totals()))
        self._cpu = _CpuMeter()

    async def collect(self) -> None:
        """Take a sample, as a background job."""
        self.sample()

    def sample(self) -> None:
        self._metrics.sample()
        self._lookups.add(Sample(self._clock.now().timestamp(), self._caches.totals()))
        self._cpu.mark()

    async def take(self, actor: Actor) -> MetricsReport:
        await check_access(self._database, actor)
        now = self._clock.now().timestamp()
        calls = self._metrics.of_tenant(actor.tenant)
        database = self._database.figures()
        return MetricsReport(
            database_performance=DatabasePerformance(
                connection_stats=database.connection_stats,
                pool_stats=database.pool_stats,
                cache_stats=self._caches.stats(),
            ),
            system_info=database.system_info,
            system_performance=self._system_performance(calls, now),
            performance_trends=self._trends(calls, now),
            operations={name: operation.figures() for name, operation in sorted(calls.operations.items())},
            measured_since=calls.since,
        )

    def _system_performance(self, calls: TenantCalls, now: float) -> SystemPerformance:
        lately = calls.series.since(_MINUTE, calls.latest(now))
        memory = _memory_bytes()
        return SystemPerformance(
            memory_usage_mb=None if memory is None else round(memory / _MEBIBYTE, 1),
            cpu_usage_percent=self._cpu.percent(),
            active_sessions=calls.sessions.count(now),
            active_agents=calls.agents.count(now),
            messages_per_second=round(lately.totals.messages / lately.seconds, 3) if lately.seconds else None,
            search_operations_per_minute=(
                round(lately.totals.searches / lately.seconds * _MINUTE) if lately.seconds else None
            ),
        )

    def _trends(self, calls: TenantCalls, now: float) -> PerformanceTrends:
        of_calls = calls.series.halves(calls.latest(now))
        of_lookups = self._lookups.halves(Sample(now, self._caches.totals()))
        return PerformanceTrends(
            response_time_trend=response_time_trend(of_calls),
            throughput_trend=throughput_trend(of_calls),
            error_rate_trend=error_rate_trend(of_calls),
            cache_efficiency_trend=cache_efficiency_trend(of_lookups),
        )


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
