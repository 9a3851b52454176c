"""The scheduler: fair between tenants, bounded, backing off after failures, and quick to stop."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.jobs.scheduler import Job, JobQueue, Scheduler, Work, backoff_seconds
from weftline.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_SECONDS = 60


async def nothing(_work: Work) -> None:
    """Do nothing."""


def queue(**limits: Any) -> JobQueue:
    return JobQueue(Job(name="test", run=nothing, every=60.0, **limits), jitter=lambda: 0.0)


def started(jobs: JobQueue) -> list[Work]:
    """Start as much work as the limits allow."""
    works = []
    while (work := jobs.start()) is not None:
        works.append(work)
    return works


def backlog(sizes: dict[str, int]) -> list[Work]:
    return [Work(tenant, (str(number),)) for tenant, size in sizes.items() for number in range(size)]


@given(
    sizes=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 30), min_size=2),
    concurrency=st.integers(1, 6),
    polls_between=st.integers(1, 5),
    start=st.integers(0, 2**32),
)
def test_a_backlog_of_one_tenant_never_delays_another_by_more_than_a_turn(
    sizes: dict[str, int], concurrency: int, polls_between: int, start: int
) -> None:
    """Simulates a frozen clock: between two starts of a waiting tenant, every other one starts at most once more."""
    jobs, generator = queue(concurrency=concurrency, per_tenant=concurrency), random.Random(start)
    left = {work.key: work for work in backlog(sizes)}
    order: list[str] = []
    while left or jobs.running:
        jobs.offer([work for key, work in left.items() if key not in jobs.running], now=0.0)
        for _ in range(polls_between):
            for work in started(jobs):
                order.append(work.tenant)
                del left[work.key]
            for work in generator.sample(list(jobs.running.values()), k=min(1, len(jobs.running))):
                jobs.finish(work, 0.0, failed=False)
    assert Counter(order) == sizes
    for tenant in sizes:
        turns = [place for place, each in enumerate(order) if each == tenant]
        for begin, end in zip([-1, *turns], turns, strict=False):
            assert max(Counter(order[begin + 1 : end]).values(), default=0) <= 2


@given(
    works=st.lists(
        st.builds(
            Work,
            tenant=st.sampled_from("abc"),
            item=st.integers(0, 40).map(lambda number: (str(number),)),
            wait=st.just(0.0),
            group=st.sampled_from(["", "host", "other"]),
            exclusive=st.booleans(),
            long=st.booleans(),
        ),
        unique_by=lambda work: work.key,
    ),
    concurrency=st.integers(1, 8),
    per_tenant=st.integers(1, 4),
    per_group=st.integers(1, 3),
)
def test_concurrency_limits_hold_and_all_work_is_done(
    works: Sequence[Work], concurrency: int, per_tenant: int, per_group: int
) -> None:
    jobs = queue(concurrency=concurrency, per_tenant=per_tenant, per_group=per_group)
    jobs.offer(works, now=0.0)
    done: list[Work] = []
    while started(jobs) or jobs.running:
        running = list(jobs.running.values())
        assert len(running) <= concurrency
        assert max(Counter(work.tenant for work in running).values()) <= per_tenant
        assert max(Counter(work.group for work in running).values()) <= per_group
        assert len(running) == 1 or not any(work.exclusive for work in running)
        long = [work for work in running if work.long]
        assert len(long) <= (concurrency + 1) // 2
        assert max(Counter(work.tenant for work in long).values(), default=0) <= (per_tenant + 1) // 2
        assert max(Counter(work.group for work in long).values(), default=0) <= (per_group + 1) // 2
        jobs.finish(running[0], 0.0, failed=False)
        done.append(running[0])
    assert sorted(work.key for work in done) == sorted(work.key for work in works)


def test_tenants_are_polled_for_items_in_round_robin_order() -> None:
    jobs = queue(concurrency=3, per_tenant=1)
    jobs.offer([Work("a"), Work("b")], now=0.0)
    for work in started(jobs):
        jobs.finish(work, 0.0, failed=False)
    assert jobs.tenants_with_room(["a", "b", "c"]) == ["c", "a", "b"]
    jobs.offer([Work("c")], now=0.0)
    started(jobs)
    assert jobs.tenants_with_room(["a", "b", "c"]) == ["a", "b"]


def test_failed_work_is_retried_with_backoff_and_delays_nothing_else() -> None:
    jobs, now, delays = queue(concurrency=2), 0.0, []
    bad, good = Work("a", ("bad",)), Work("b", ("good",))
    for _ in range(8):
        jobs.offer([bad, good], now)
        assert set(started(jobs)) == {bad, good}
        jobs.finish(good, now, failed=False)
        delay = jobs.finish(bad, now, failed=True)
        assert delay is not None
        assert jobs.offer([bad, good], now) == delay
        assert started(jobs) == [good]
        jobs.finish(good, now, failed=False)
        delays.append(delay)
        now += delay
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    jobs.offer([bad], now)
    started(jobs)
    jobs.finish(bad, now, failed=False)
    jobs.offer([bad], now)
    started(jobs)
    assert jobs.finish(bad, now, failed=True) == 1, "a success ends the backoff"
    jobs.retry_now()
    jobs.offer([bad], now)
    assert started(jobs) == [bad]


@given(failures=st.integers(1, 1000), jitter=st.floats(0, 1))
def test_backoff_is_bounded_and_jitter_takes_at_most_half(failures: int, jitter: float) -> None:
    longest = backoff_seconds(failures, 0.0)
    assert longest / 2 <= backoff_seconds(failures, jitter) <= longest <= 60


def test_delayed_work_sets_the_time_of_the_next_poll() -> None:
    jobs = queue()
    assert jobs.offer([Work("a", wait=5.0), Work("b", wait=3.0)], now=0.0) == 3.0
    assert started(jobs) == []


async def wait_until(condition: Any) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)


@pytest.fixture
async def scheduler(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("weftline.jobs.scheduler._MIN_POLL_SECONDS", 0.0)
    scheduler = Scheduler()
    yield scheduler
    await scheduler.stop()


async def test_a_job_without_items_runs_at_its_interval(scheduler: Scheduler) -> None:
    runs: list[Work] = []

    async def run(work: Work) -> None:
        runs.append(work)

    scheduler.add(Job(name="often", every=0.005, run=run), Job(name="rarely", every=3_600.0, run=run))
    scheduler.start()
    await wait_until(lambda: len(runs) >= 3)
    assert set(runs) == {Work()}


async def test_events_poll_only_the_jobs_that_listen_to_them(scheduler: Scheduler) -> None:
    polls: Counter[str] = Counter()

    def job(name: str, **options: Any) -> Job:
        async def due(_queue: JobQueue) -> list[Work]:
            polls[name] += 1
            return []

        return Job(name=name, every=3_600.0, run=nothing, due=due, **options)

    notified: list[set[str]] = []
    scheduler.add(job("deaf"), job("listening", on_events=lambda tenants: notified.append(tenants) or 0.0))
    scheduler.start()
    scheduler.notify({"a"})
    await wait_until(lambda: polls["listening"] == 1)
    assert (polls["deaf"], notified) == (0, [{"a"}])


async def test_a_job_can_be_woken_from_another_thread(scheduler: Scheduler) -> None:
    ran = asyncio.Event()

    async def run(_work: Work) -> None:
        ran.set()

    scheduler.add(Job(name="sleeping", every=3_600.0, run=run))
    scheduler.wake("sleeping")
    scheduler.start()
    await asyncio.to_thread(scheduler.wake, "sleeping")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await ran.wait()


async def test_work_that_reports_more_is_polled_again_at_once(scheduler: Scheduler) -> None:
    left = 5

    async def due(_queue: JobQueue) -> list[Work]:
        return [Work("a")] if left else []

    async def run(_work: Work) -> bool:
        nonlocal left
        left -= 1
        return True

    scheduler.add(Job(name="backlog", every=3_600.0, run=run, due=due))
    scheduler.start()
    scheduler.wake("backlog")
    await wait_until(lambda: left == 0)


async def test_a_failure_is_logged_and_retried_and_stops_no_other_work(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("weftline.jobs.scheduler._BACKOFF_SECONDS", 0.005)
    monkeypatch.setattr("weftline.jobs.runner._failing", {})
    caplog.set_level("INFO", "weftline.jobs")
    tries: Counter[str] = Counter()

    async def due(_queue: JobQueue) -> list[Work]:
        return [Work("broken"), Work("unavailable"), Work("fine")]

    async def run(work: Work) -> None:
        tries[work.tenant] += 1
        if work.tenant == "broken" and tries["broken"] < 3:
            raise RuntimeError
        if work.tenant == "unavailable" and tries["unavailable"] < 3:
            raise Unavailable("away")

    scheduler.add(Job(name="work", every=0.01, run=run, due=due, concurrency=3))
    scheduler.start()
    await wait_until(lambda: min(tries["broken"], tries["unavailable"], tries["fine"]) >= 4)
    logged = Counter((record.message, record.fields["tenant"]) for record in caplog.records)
    assert logged == {("job failed", "broken"): 2, ("job fails", "unavailable"): 1, ("job recovered", "unavailable"): 1}


async def test_a_poll_that_fails_is_repeated(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.jobs.scheduler._BACKOFF_SECONDS", 0.001)
    polls = 0

    async def due(_queue: JobQueue) -> list[Work]:
        nonlocal polls
        polls += 1
        raise Unavailable("away")

    scheduler.add(Job(name="polled", every=3_600.0, run=nothing, due=due, on_events=lambda _: 0.0))
    scheduler.start()
    scheduler.notify(set())
    await wait_until(lambda: polls >= 3)


async def test_a_paused_job_runs_on_demand_only(scheduler: Scheduler) -> None:
    runs = 0

    async def run(_work: Work) -> None:
        nonlocal runs
        runs += 1

    scheduler.add(Job(name="paused", every=0.001, run=run))
    scheduler.paused.add("paused")
    scheduler.start()
    await asyncio.sleep(0.02)
    assert runs == 0
    await scheduler.drain("paused")
    assert runs == 1


async def test_draining_works_without_the_scheduler_running() -> None:
    left, scheduler = {"a": 3, "b": 2}, Scheduler()

    async def due(_queue: JobQueue) -> list[Work]:
        return [Work(tenant) for tenant, number in left.items() if number]

    async def run(work: Work) -> bool:
        if work.tenant == "b":
            raise RuntimeError
        left[work.tenant] -= 1
        return True

    scheduler.add(Job(name="backlog", every=1.0, run=run, due=due))
    await scheduler.drain("backlog")
    assert left == {"a": 0, "b": 2}


async def test_stopping_lets_work_reach_its_next_step_and_cancels_the_rest(scheduler: Scheduler) -> None:
    ended: list[str] = []

    async def due(_queue: JobQueue) -> list[Work]:
        return [Work("cooperative"), Work("stubborn"), Work("waits for room")]

    async def run(work: Work) -> None:
        try:
            if work.tenant == "cooperative":
                await scheduler.stopping.wait()
                ended.append("finished")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(f"{work.tenant} cancelled")
            raise

    scheduler.add(Job(name="work", every=60.0, run=run, due=due, concurrency=2))
    scheduler.start()
    scheduler.wake("work")
    loop = asyncio.get_running_loop()
    await wait_until(lambda: len(scheduler._entries["work"].tasks) == 2)
    started_at = loop.time()
    await scheduler.stop(grace_seconds=0.2)
    assert 0.1 < loop.time() - started_at < 2
    assert ended[0] == "finished"
    assert "stubborn cancelled" in ended
    assert not scheduler._entries["work"].tasks


async def test_stopping_is_immediate_when_nothing_runs(scheduler: Scheduler) -> None:
    scheduler.add(Job(name="idle", every=60.0, run=nothing))
    scheduler.start()
    loop = asyncio.get_running_loop()
    before = loop.time()
    await scheduler.stop(grace_seconds=30.0)
    assert loop.time() - before < 1


async def test_one_job_that_hangs_delays_no_other(scheduler: Scheduler) -> None:
    runs = 0

    async def hang(_work: Work) -> None:
        await asyncio.Event().wait()

    async def run(_work: Work) -> None:
        nonlocal runs
        runs += 1

    scheduler.add(Job(name="hanging", every=0.001, run=hang), Job(name="other", every=0.001, run=run))
    scheduler.start()
    await wait_until(lambda: runs >= 3)
    assert len(scheduler._entries["hanging"].tasks) == 1
