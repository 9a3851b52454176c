"""Rates and trends come from totals noted now and then; the clock is moved, never waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft.app.caches import Cache, CacheRegistry
from weft.app.metrics import Metrics
from weft.app.metrics_snapshot import MetricsSnapshot
from weft.app.registry import all_operations
from weft.app.trends import CallTotals, Sample, Series, compare, throughput_trend
from weft.capabilities.metrics.model import Trend
from weft.kernel.identity import Actor, Permission, PrincipalKind
from weft.storage.sql.database import connect
from weft.testing.clock import FrozenClock

if TYPE_CHECKING:
    from weft.capabilities.metrics.model import PerformanceTrends, SystemPerformance
    from weft.kernel.operation import Operation

pytestmark = pytest.mark.req("MS-08")
REGISTRY = all_operations()
READ, WAIT, ADD = REGISTRY["board.read"], REGISTRY["events.read"], REGISTRY["message.add"]
INTERVAL = 30.0


def actor(tenant: str = "home", name: str = "planner") -> Actor:
    return Actor(tenant, name, PrincipalKind.AGENT, "planning", False, frozenset(Permission), 1, 1)  # noqa: FBT003


class Watched:
    """A process whose calls and time are made up."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.metrics = Metrics(self.clock)
        self.caches = CacheRegistry()
        self.metrics_snapshot = MetricsSnapshot(connect("never-opened.db"), self.metrics, self.caches, self.clock)

    def call(
        self, times: int = 1, seconds: float = 0.001, outcome: str = "ok", operation: Operation = READ, **who: str
    ) -> None:
        for _ in range(times):
            self.metrics.record(operation, outcome, seconds, actor(**who), "s1")

    def pass_time(self, minutes: float, calls: int = 0, **what: Any) -> None:
        """Let time go by with so many calls in each interval."""
        for _ in range(int(minutes * 60 / INTERVAL)):
            self.call(calls, **what)
            self.clock.advance(seconds=INTERVAL)
            self.metrics_snapshot.sample()

    @property
    def now(self) -> float:
        return self.clock.now().timestamp()

    @property
    def trends(self) -> PerformanceTrends:
        return self.metrics_snapshot._trends(self.metrics.of_tenant("home"), self.now)

    @property
    def system(self) -> SystemPerformance:
        return self.metrics_snapshot._system_performance(self.metrics.of_tenant("home"), self.now)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize(
    ("before", "lately", "at_least", "trend"),
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
def test_a_change_of_more_than_a_tenth_is_a_trend(before: float, lately: float, at_least: float, trend: Trend) -> None:
    assert compare(before, lately, at_least=at_least) is trend


def test_trends_are_unknown_until_there_is_enough_to_compare(watched: Watched) -> None:
    watched.pass_time(minutes=9.5, calls=100)
    assert watched.trends.throughput_trend is Trend.UNKNOWN
    watched.pass_time(minutes=0.5, calls=100)
    assert watched.trends.throughput_trend is Trend.STABLE


def test_a_few_calls_are_no_trend(watched: Watched) -> None:
    watched.call(19)
    watched.pass_time(minutes=60)
    trends = watched.trends
    assert {trends.response_time_trend, trends.throughput_trend, trends.error_rate_trend} == {Trend.UNKNOWN}


def test_the_last_hour_is_compared_with_the_time_before(watched: Watched) -> None:
    watched.pass_time(minutes=300, calls=2)
    watched.pass_time(minutes=60, calls=3)
    assert watched.trends.throughput_trend is Trend.INCREASING
    watched.pass_time(minutes=60, calls=2)
    assert watched.trends.throughput_trend is Trend.STABLE
    watched.pass_time(minutes=60, calls=1)
    assert watched.trends.throughput_trend is Trend.DECREASING


def test_no_calls_lower_throughput_and_leave_response_times_unknown(watched: Watched) -> None:
    watched.pass_time(minutes=120, calls=2)
    watched.pass_time(minutes=60)
    assert watched.trends.throughput_trend is Trend.DECREASING
    assert watched.trends.response_time_trend is Trend.UNKNOWN


def test_what_is_older_than_a_day_is_not_compared(watched: Watched) -> None:
    watched.pass_time(minutes=60, calls=100)
    watched.pass_time(minutes=25 * 60, calls=1)
    assert watched.trends.throughput_trend is Trend.STABLE


def test_slower_calls_are_a_rising_response_time(watched: Watched) -> None:
    watched.pass_time(minutes=60, calls=1, seconds=0.002)
    watched.pass_time(minutes=60, calls=1, seconds=0.003)
    assert watched.trends.response_time_trend is Trend.INCREASING


def test_long_polls_do_not_count_as_slow(watched: Watched) -> None:
    watched.pass_time(minutes=60, calls=1)
    watched.call(5, seconds=60.0, operation=WAIT)
    watched.pass_time(minutes=60, calls=1)
    assert watched.trends.response_time_trend is Trend.STABLE


def test_errors_that_stop_are_a_falling_error_rate(watched: Watched) -> None:
    watched.call(10, outcome="KEY_NOT_FOUND")
    watched.pass_time(minutes=60, calls=1)
    watched.pass_time(minutes=60, calls=1)
    assert watched.trends.error_rate_trend is Trend.DECREASING


def test_one_error_in_a_thousand_calls_is_no_trend(watched: Watched) -> None:
    watched.pass_time(minutes=60, calls=10)
    watched.call(outcome="KEY_NOT_FOUND")
    watched.pass_time(minutes=60, calls=10)
    assert watched.trends.error_rate_trend is Trend.STABLE


def test_the_trend_of_caches_follows_their_hits(watched: Watched) -> None:
    cache = watched.caches.register(Cache[str]("answers", 1, 10, 10**6, watched.clock))
    for _ in range(30):
        cache.get("absent")
    watched.pass_time(minutes=60)
    cache.put("present", "value")
    for _ in range(30):
        cache.get("present")
    watched.pass_time(minutes=60)
    assert watched.trends.cache_efficiency_trend is Trend.INCREASING


def test_rates_are_of_the_last_minute(watched: Watched) -> None:
    watched.pass_time(minutes=10, calls=30, operation=ADD)
    assert watched.system.messages_per_second == 1.0
    watched.pass_time(minutes=1)
    assert watched.system.messages_per_second == 0.0


def test_only_messages_that_were_sent_are_counted(watched: Watched) -> None:
    watched.pass_time(minutes=1, calls=30, operation=ADD, outcome="CONTENT_TOO_LARGE")
    watched.pass_time(minutes=1, calls=30, operation=READ)
    assert watched.system.messages_per_second == 0.0


def test_no_rate_is_reported_before_time_has_passed(watched: Watched) -> None:
    watched.call(operation=ADD)
    assert watched.system.messages_per_second is None
    assert watched.system.search_operations_per_minute is None


def test_activity_is_forgotten_after_five_minutes(watched: Watched) -> None:
    watched.call(name="planner")
    watched.call(name="analysis")
    assert (watched.system.active_agents, watched.system.active_sessions) == (2, 1)
    watched.pass_time(minutes=5)
    assert watched.system.active_agents == 2
    watched.pass_time(minutes=0.5)
    assert (watched.system.active_agents, watched.system.active_sessions) == (0, 0)


def test_a_session_named_in_a_call_that_failed_is_not_active(watched: Watched) -> None:
    watched.call(outcome="SESSION_NOT_FOUND")
    assert (watched.system.active_agents, watched.system.active_sessions) == (1, 0)


def test_the_names_remembered_are_bounded(watched: Watched) -> None:
    for number in range(10_050):
        watched.call(name=f"agent-{number}")
    assert watched.system.active_agents == 10_000


def test_the_tenant_idle_for_longest_is_forgotten_first(watched: Watched) -> None:
    started = watched.clock.now()
    watched.call(tenant="idle")
    watched.call(tenant="busy")
    for number in range(999):
        watched.call(tenant="busy")
        watched.call(tenant=f"tenant-{number}")
    watched.clock.advance(hours=1)
    assert watched.metrics.of_tenant("idle").operations == {}
    assert watched.metrics.of_tenant("idle").since == watched.clock.now()
    assert watched.metrics.of_tenant("busy").operations["board.read"].figures().calls == 1_000
    assert watched.metrics.of_tenant("busy").since == started


def test_a_series_keeps_a_day_in_little_memory() -> None:
    series = Series(Sample(0.0, CallTotals()))
    for number in range(1, 4 * 2_880):
        series.add(Sample(number * INTERVAL, CallTotals(calls=number)))
    assert len(series._fine) + len(series._coarse) <= 301
    latest = Sample(4 * 86_400.0, CallTotals(calls=4 * 2_880))
    assert series.since(86_400, latest).totals.calls == 2_880
    assert series.since(60, latest).totals.calls == 2


def test_parts_without_a_length_are_not_compared() -> None:
    series = Series(Sample(0.0, CallTotals()))
    assert throughput_trend(series.halves(Sample(1_200.0, CallTotals(calls=100)))) is Trend.UNKNOWN


def test_percentiles_rise_and_never_pass_the_slowest_call(watched: Watched) -> None:
    for milliseconds in range(1, 101):
        watched.call(seconds=milliseconds / 1_000)
    figures = watched.metrics.of_tenant("home").operations["board.read"].figures()
    assert figures.p50_ms == pytest.approx(50, abs=1)
    assert figures.p95_ms == pytest.approx(95, abs=1)
    assert figures.p50_ms <= figures.p95_ms <= figures.p99_ms <= 100


def test_a_call_beyond_every_bucket_reports_its_duration(watched: Watched) -> None:
    watched.call(times=100, seconds=45.0)
    assert watched.metrics.of_tenant("home").operations["board.read"].figures().p99_ms == pytest.approx(
        45_000, rel=0.02
    )


def test_calls_of_unknown_callers_belong_to_no_tenant(watched: Watched) -> None:
    watched.metrics.record(READ, "AUTHENTICATION_ERROR", 0.001)
    assert watched.metrics.of_tenant("home").operations == {}
    assert (
        b'weft_calls_total{operation="board.read",outcome="AUTHENTICATION_ERROR"} 1.0' in watched.metrics.exposition()
    )
