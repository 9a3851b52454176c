"""Rates and trends from sampled totals, on a simulated clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weftline.app.caches import Cache, CacheRegistry
from weftline.app.metrics import Metrics, Sample, Series, compare, halves
from weftline.app.metrics_snapshot import MetricsSnapshot, merged, trends
from weftline.app.registry import all_operations
from weftline.insight.metrics import BUCKET_SECONDS, MetricBucket, MetricTotals, Trend
from weftline.kernel.identity import Actor, Permission, PrincipalKind
from weftline.storage.sql.database import connect
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from weftline.insight.metrics import PerformanceTrends, SystemPerformance
    from weftline.kernel.operation import Operation

pytestmark = pytest.mark.req("MS-08")
REGISTRY = all_operations()
READ, WAIT, ADD = REGISTRY["board.read"], REGISTRY["events.read"], REGISTRY["message.add"]
INTERVAL = 30.0


def actor(tenant: str = "home", name: str = "planner") -> Actor:
    return Actor(tenant, name, PrincipalKind.AGENT, "planning", False, frozenset(Permission), 1, 1)  # noqa: FBT003


class SimulatedProcess:
    """A process with simulated calls and time."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.metrics = Metrics(self.clock)
        self.caches = CacheRegistry()
        self.metrics_snapshot = MetricsSnapshot(
            connect("never-opened.db"), self.metrics, self.caches, self.clock, lambda _: []
        )
        # The metric history, by tenant.
        self.history: dict[str, list[MetricBucket]] = {"home": [], "": []}

    def call(
        self, times: int = 1, seconds: float = 0.001, outcome: str = "ok", operation: Operation = READ, **identity: str
    ) -> None:
        for _ in range(times):
            self.metrics.record(operation, outcome, seconds, actor(**identity), "s1")

    def pass_time(self, minutes: float, calls: int = 0, **options: Any) -> None:
        """Advance the clock with ``calls`` calls in each interval."""
        for _ in range(int(minutes * 60 / INTERVAL)):
            self.call(calls, **options)
            self.clock.advance(seconds=INTERVAL)
            self.metrics_snapshot.sample()
            rows = self.metrics_snapshot.unwritten()
            oldest = self.now - 86_400
            for tenant, buckets in self.history.items():
                self.history[tenant] = [each for each in merged(buckets, rows, tenant) if each.start >= oldest]
            self.metrics_snapshot.mark_written(rows, dict(self.metrics.by_tenant()), int(self.now))

    @property
    def now(self) -> float:
        return self.clock.now().timestamp()

    @property
    def trends(self) -> PerformanceTrends:
        rows = self.metrics_snapshot.unwritten()
        of_tenant, of_servers = (merged(self.history[tenant], rows, tenant) for tenant in ("home", ""))
        return trends(of_tenant, of_servers, self.now)

    @property
    def system(self) -> SystemPerformance:
        return self.metrics_snapshot.system_performance(self.metrics.of_tenant("home"), self.now, is_operator=True)


@pytest.fixture
def process() -> SimulatedProcess:
    return SimulatedProcess()


@pytest.mark.parametrize(
    ("before", "recent", "min_change", "trend"),
    [
        (100, 110, 0.0, Trend.STABLE),
        (100, 111, 0.0, Trend.INCREASING),
        (100, 90, 0.0, Trend.STABLE),
        (100, 89, 0.0, Trend.DECREASING),
        (0, 0, 0.0, Trend.STABLE),
        (0, 0.001, 0.01, Trend.STABLE),
        (0, 0.02, 0.01, Trend.INCREASING),
    ],
)
def test_a_change_of_more_than_a_tenth_is_a_trend(
    before: float, recent: float, min_change: float, trend: Trend
) -> None:
    assert compare(before, recent, at_least=min_change) is trend


def test_trends_are_unknown_in_the_first_ten_minutes(process: SimulatedProcess) -> None:
    process.pass_time(minutes=9.5, calls=100)
    assert process.trends.throughput_trend is Trend.UNKNOWN
    process.pass_time(minutes=0.5, calls=100)
    assert process.trends.throughput_trend is Trend.STABLE


def test_a_few_calls_are_no_trend(process: SimulatedProcess) -> None:
    process.call(19)
    process.pass_time(minutes=60)
    trends = process.trends
    assert {trends.response_time_trend, trends.throughput_trend, trends.error_rate_trend} == {Trend.UNKNOWN}


def test_the_last_hour_is_compared_with_the_time_before(process: SimulatedProcess) -> None:
    process.pass_time(minutes=300, calls=2)
    process.pass_time(minutes=60, calls=3)
    assert process.trends.throughput_trend is Trend.INCREASING
    process.pass_time(minutes=60, calls=2)
    assert process.trends.throughput_trend is Trend.STABLE
    process.pass_time(minutes=60, calls=1)
    assert process.trends.throughput_trend is Trend.DECREASING


def test_no_calls_lower_throughput_and_leave_response_times_unknown(process: SimulatedProcess) -> None:
    process.pass_time(minutes=120, calls=2)
    process.pass_time(minutes=60)
    assert process.trends.throughput_trend is Trend.DECREASING
    assert process.trends.response_time_trend is Trend.UNKNOWN


def test_samples_older_than_a_day_are_not_compared(process: SimulatedProcess) -> None:
    process.pass_time(minutes=60, calls=100)
    process.pass_time(minutes=25 * 60, calls=1)
    assert process.trends.throughput_trend is Trend.STABLE


def test_slower_calls_are_a_rising_response_time(process: SimulatedProcess) -> None:
    process.pass_time(minutes=60, calls=1, seconds=0.002)
    process.pass_time(minutes=60, calls=1, seconds=0.003)
    assert process.trends.response_time_trend is Trend.INCREASING


def test_long_polls_do_not_count_as_slow(process: SimulatedProcess) -> None:
    process.pass_time(minutes=60, calls=1)
    process.call(5, seconds=60.0, operation=WAIT)
    process.pass_time(minutes=60, calls=1)
    assert process.trends.response_time_trend is Trend.STABLE


def test_errors_that_stop_are_a_falling_error_rate(process: SimulatedProcess) -> None:
    process.call(10, outcome="KEY_NOT_FOUND")
    process.pass_time(minutes=60, calls=1)
    process.pass_time(minutes=60, calls=1)
    assert process.trends.error_rate_trend is Trend.DECREASING


def test_one_error_in_a_thousand_calls_is_no_trend(process: SimulatedProcess) -> None:
    process.pass_time(minutes=60, calls=10)
    process.call(outcome="KEY_NOT_FOUND")
    process.pass_time(minutes=60, calls=10)
    assert process.trends.error_rate_trend is Trend.STABLE


def test_the_cache_trend_follows_the_hit_ratio(process: SimulatedProcess) -> None:
    cache = process.caches.register(Cache[str]("answers", 1, 10, 10**6, process.clock))
    for _ in range(30):
        cache.get(("home", "absent"))
    process.pass_time(minutes=60)
    cache.put(("home", "present"), "value")
    for _ in range(30):
        cache.get(("home", "present"))
    process.pass_time(minutes=60)
    assert process.trends.cache_efficiency_trend is Trend.INCREASING


def test_rates_cover_the_last_minute(process: SimulatedProcess) -> None:
    process.pass_time(minutes=10, calls=30, operation=ADD)
    assert process.system.messages_per_second == 1.0
    process.pass_time(minutes=1)
    assert process.system.messages_per_second == 0.0


def test_only_added_messages_are_counted(process: SimulatedProcess) -> None:
    process.pass_time(minutes=1, calls=30, operation=ADD, outcome="CONTENT_TOO_LARGE")
    process.pass_time(minutes=1, calls=30, operation=READ)
    assert process.system.messages_per_second == 0.0


def test_no_rate_is_reported_before_time_has_passed(process: SimulatedProcess) -> None:
    process.call(operation=ADD)
    assert process.system.messages_per_second is None
    assert process.system.search_operations_per_minute is None


def test_agents_and_sessions_are_active_for_five_minutes(process: SimulatedProcess) -> None:
    process.call(name="planner")
    process.call(name="analysis")
    assert (process.system.active_agents, process.system.active_sessions) == (2, 1)
    process.pass_time(minutes=5)
    assert process.system.active_agents == 2
    process.pass_time(minutes=0.5)
    assert (process.system.active_agents, process.system.active_sessions) == (0, 0)


def test_a_session_of_a_failed_call_is_not_active(process: SimulatedProcess) -> None:
    process.call(outcome="SESSION_NOT_FOUND")
    assert (process.system.active_agents, process.system.active_sessions) == (1, 0)


def test_the_number_of_counted_agents_is_bounded(process: SimulatedProcess) -> None:
    for number in range(10_050):
        process.call(name=f"agent-{number}")
    assert process.system.active_agents == 10_000


def test_metrics_of_the_longest_idle_tenant_are_evicted_first(process: SimulatedProcess) -> None:
    started = process.clock.now()
    process.call(tenant="idle")
    process.call(tenant="busy")
    for number in range(999):
        process.call(tenant="busy")
        process.call(tenant=f"tenant-{number}")
    process.clock.advance(hours=1)
    assert process.metrics.of_tenant("idle").operations == {}
    assert process.metrics.of_tenant("idle").since == process.clock.now()
    assert process.metrics.of_tenant("busy").operations["board.read"].figures().calls == 1_000
    assert process.metrics.of_tenant("busy").since == started


def test_a_series_keeps_the_latest_samples_only() -> None:
    series = Series(Sample(0.0, MetricTotals()))
    for number in range(1, 4 * 2_880):
        series.add(Sample(number * INTERVAL, MetricTotals(calls=number)))
    assert len(series._samples) == 12
    latest = Sample(4 * 86_400.0, MetricTotals(calls=4 * 2_880))
    assert series.since(60, latest).totals.calls == 2


def test_both_parts_of_a_trend_have_a_length() -> None:
    for first_at in range(1_000_000, 1_000_000 + BUCKET_SECONDS, 7):
        start = first_at - first_at % BUCKET_SECONDS
        buckets = [
            MetricBucket(start + BUCKET_SECONDS * number, first_at, MetricTotals(calls=1)) for number in range(9)
        ]
        for measured in range(600, 2_400, 11):
            parts = halves(buckets, first_at + measured)
            assert parts is not None
            assert min(part.seconds for part in parts) >= BUCKET_SECONDS / 2
            assert sum(part.seconds for part in parts) == measured
            assert sum(part.totals.calls for part in parts) == 9


def test_nothing_is_written_while_nothing_is_called(process: SimulatedProcess) -> None:
    process.pass_time(minutes=60)
    assert process.history == {"home": [], "": []}
    process.call(3)
    process.pass_time(minutes=1)
    assert [each.totals.calls for each in process.history["home"]] == [3]


def test_percentiles_are_ordered_and_at_most_the_slowest_call(process: SimulatedProcess) -> None:
    for milliseconds in range(1, 101):
        process.call(seconds=milliseconds / 1_000)
    figures = process.metrics.of_tenant("home").operations["board.read"].figures()
    assert figures.p50_ms == pytest.approx(50, abs=1)
    assert figures.p95_ms == pytest.approx(95, abs=1)
    assert figures.p50_ms <= figures.p95_ms <= figures.p99_ms <= 100


def test_a_call_beyond_every_bucket_reports_its_duration(process: SimulatedProcess) -> None:
    process.call(times=100, seconds=45.0)
    assert process.metrics.of_tenant("home").operations["board.read"].figures().p99_ms == pytest.approx(
        45_000, rel=0.02
    )


def test_calls_without_an_actor_are_counted_for_no_tenant(process: SimulatedProcess) -> None:
    process.metrics.record(READ, "AUTHENTICATION_ERROR", 0.001)
    assert process.metrics.of_tenant("home").operations == {}
    assert (
        b'weftline_calls_total{operation="board.read",outcome="AUTHENTICATION_ERROR"} 1.0'
        in process.metrics.exposition()
    )
