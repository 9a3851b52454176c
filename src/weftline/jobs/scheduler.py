"""The scheduler: one task that knows when each job is next due and runs what is due, fairly between tenants.

A job is declared as data (``Job``). The scheduler polls a job when its interval has passed, when its next piece of work
becomes due, or when the event feed announces new events; then it runs the work that the poll found, as far as the job's
limits allow. An idle agent, session or document costs neither a task nor a timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import math
import random
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from weftline.insight.metrics import JobFigures
from weftline.jobs.runner import attempt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

# Jobs that react to events look once for what happened while no process was running.
_FIRST_POLL_SECONDS = 1.0
# Work that becomes due at almost the same time is polled together.
_MIN_POLL_SECONDS = 0.05
_BACKOFF_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 60.0
_NEVER = math.inf

Key: TypeAlias = tuple[str, tuple[str, ...]]


class Work(NamedTuple):
    """A unit of work of a job: one tenant's, or one item of a tenant; empty for the process itself."""

    tenant: str = ""
    item: tuple[str, ...] = ()
    # Seconds until it is due.
    wait: float = 0.0
    # Work of the same group, such as calls to one host, shares the job's limit ``per_group``.
    group: str = ""
    # Runs while nothing else of its job does.
    exclusive: bool = False
    # May take long: takes at most half of each limit, so that short work never waits for it.
    long: bool = False

    @property
    def key(self) -> Key:
        return self.tenant, self.item


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A background job.

    Its scope follows from ``due``: without it the job runs once per interval for the process, else for each tenant or
    item that ``due`` lists. ``run`` returns something true if there may be more to do at once.
    """

    name: str
    run: Callable[[Work], Awaitable[object]]
    # Seconds between polls.
    every: float | Callable[[], float]
    due: DueSource | None = None
    # Seconds until a poll after events of these tenants (of any, if the set is empty).
    on_events: Callable[[set[str]], float] | None = None
    concurrency: int = 1
    per_tenant: int = 1
    per_group: int = 1_000

    @property
    def interval(self) -> float:
        return self.every() if callable(self.every) else self.every


DueSource: TypeAlias = "Callable[[JobQueue], Awaitable[Sequence[Work]]]"


def long_share(limit: int) -> int:
    """Return how much of a limit long work may take."""
    return (limit + 1) // 2


def backoff_seconds(failures: int, jitter: float) -> float:
    """Return the seconds to wait after failures in a row: exponential, with up to half of it cut by jitter."""
    return min(_MAX_BACKOFF_SECONDS, _BACKOFF_SECONDS * 2.0 ** min(failures - 1, 30)) * (1 - jitter / 2)


class JobQueue:
    """The due and running work of one job. Tenants take turns, and failed work is backed off."""

    def __init__(self, job: Job, jitter: Callable[[], float] = random.random) -> None:
        self.job = job
        self.running: dict[Key, Work] = {}
        self._jitter = jitter
        self._ready: dict[str, deque[Work]] = {}
        # When each tenant and each piece of work was last started, as a count of starts.
        self._turns: dict[str | Key, int] = {}
        self._starts = itertools.count(1)
        self._failures: dict[Key, int] = {}
        self._blocked: dict[Key, float] = {}

    def tenants_with_room(self, tenants: Iterable[str]) -> list[str]:
        """Return the tenants whose work could start now, in the order of their turns, no more than have room."""
        running = Counter(work.tenant for work in self.running.values())
        waiting = [tenant for tenant in tenants if running[tenant] < self.job.per_tenant]
        return sorted(waiting, key=self._turn)[: self._room()]

    def offer(self, found: Sequence[Work], now: float) -> float:
        """Replace the work that is ready by what a poll found; return the seconds until more of it becomes due."""
        known = {work.key for work in found} | self.running.keys()
        tenants = {tenant for tenant, _ in known}
        self._turns = {key: turn for key, turn in self._turns.items() if key in known or key in tenants}
        self._failures = {key: count for key, count in self._failures.items() if key in known}
        self._blocked = {key: until for key, until in self._blocked.items() if key in known and until > now}
        waits = {work.key: max(work.wait, self._blocked.get(work.key, now) - now) for work in found}
        ready = [work for work in found if waits[work.key] <= 0 and work.key not in self.running]
        self._ready = {}
        for work in sorted(ready, key=lambda work: (self._turn(work.tenant), self._turn(work.key))):
            self._ready.setdefault(work.tenant, deque()).append(work)
        return min((wait for wait in waits.values() if wait > 0), default=_NEVER)

    def start(self) -> Work | None:
        """Take the next piece of work within the limits: of the tenant that was served longest ago."""
        if self._room() <= 0:
            return None
        has_room = self._limits([*self.running.values()], int)
        has_long_room = self._limits([work for work in self.running.values() if work.long], long_share)
        for queue in self._ready.values():
            for position, work in enumerate(queue):
                if not has_room(work) or (work.long and not has_long_room(work)):
                    continue
                if work.exclusive and self.running:
                    # Nothing else starts before it, so that it is never postponed for ever.
                    return None
                del queue[position]
                self._begin(work, queue)
                return work
        return None

    def finish(self, work: Work, now: float, *, failed: bool) -> float | None:
        """Note the end of a piece of work; return the seconds until a retry if it failed."""
        del self.running[work.key]
        if not failed:
            self._failures.pop(work.key, None)
            return None
        count = self._failures[work.key] = self._failures.get(work.key, 0) + 1
        delay = backoff_seconds(count, self._jitter())
        self._blocked[work.key] = now + delay
        return delay

    def figures(self, tenant: str | None) -> JobFigures:
        """Return how much work runs, is ready and failed: of a tenant, or of all."""
        return JobFigures(
            name=self.job.name,
            running=sum(tenant in {None, work.tenant} for work in self.running.values()),
            ready=sum(len(queue) for owner, queue in self._ready.items() if tenant in {None, owner}),
            failing=sum(tenant in {None, owner} for owner, _ in self._failures),
        )

    def retry_now(self) -> None:
        """End every backoff."""
        self._blocked.clear()

    def _begin(self, work: Work, queue: deque[Work]) -> None:
        self._turns[work.tenant] = self._turns[work.key] = next(self._starts)
        self.running[work.key] = work
        del self._ready[work.tenant]
        if queue:
            # Last: tenants are kept in the order of their turns.
            self._ready[work.tenant] = queue

    def _limits(self, running: Sequence[Work], share: Callable[[int], int]) -> Callable[[Work], bool]:
        """Return a predicate: whether a piece of work may start beside running ones within this share of each limit."""
        tenants, groups = Counter(work.tenant for work in running), Counter(work.group for work in running)
        total, per_tenant, per_group = map(share, (self.job.concurrency, self.job.per_tenant, self.job.per_group))
        return lambda work: (
            len(running) < total and tenants[work.tenant] < per_tenant and groups[work.group] < per_group
        )

    def _room(self) -> int:
        if any(work.exclusive for work in self.running.values()):
            return 0
        return self.job.concurrency - len(self.running)

    def _turn(self, key: str | Key) -> int:
        return self._turns.get(key, 0)


class _Entry:
    """A job with its queue and the time of its next poll."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.queue = JobQueue(job)
        self.poll_at = _NEVER
        self.polling: asyncio.Task[None] | None = None
        self.failed_polls = 0
        self.tasks: set[asyncio.Task[None]] = set()
        # Whether work that ended since the last poll reported more.
        self.has_more = False


class Scheduler:
    """Runs jobs when they are due, in this process. Leases in the database keep processes from doing work twice."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        # Polls by time. An entry whose time is not its job's next poll any more is ignored.
        self._heap: list[tuple[float, str]] = []
        self._wake = asyncio.Event()
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        # Set when the scheduler stops: long work ends at its next step.
        self.stopping = asyncio.Event()
        # Jobs that run on demand only.
        self.paused: set[str] = set()

    def add(self, *jobs: Job) -> None:
        self._entries |= {job.name: _Entry(job) for job in jobs}

    @property
    def jobs(self) -> list[Job]:
        return [entry.job for entry in self._entries.values()]

    def figures(self, tenant: str | None) -> list[JobFigures]:
        """Return the jobs of this process that have work for a tenant, or for any, by name."""
        found = [entry.queue.figures(tenant) for _, entry in sorted(self._entries.items())]
        return [each for each in found if each.running or each.ready or each.failing]

    def runs(self, name: str) -> bool:
        """Tell whether a job runs by itself in this process."""
        return self._event_loop is not None and name not in self.paused

    def start(self) -> None:
        for entry in self._entries.values():
            first = entry.job.interval if entry.job.on_events is None else _FIRST_POLL_SECONDS
            self._schedule(entry, first)
        self._event_loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(), name="weftline-scheduler")

    async def stop(self, grace_seconds: float = 0.0) -> None:
        """Start nothing more, let running work reach its next step, and cancel what is left after the grace."""
        self.stopping.set()
        self._event_loop = None
        tasks = [task for entry in self._entries.values() for task in entry.tasks]
        if self._task is not None:
            self._task.cancel()
        if tasks and grace_seconds > 0:
            await asyncio.wait(tasks, timeout=grace_seconds)
        polls = [entry.polling for entry in self._entries.values() if entry.polling is not None]
        ending = [*tasks, *polls, *([] if self._task is None else [self._task])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def wake(self, name: str, seconds: float = _MIN_POLL_SECONDS) -> None:
        """Poll a job soon. Any thread may call it, also from a transaction that is about to commit."""
        if self._event_loop is not None and name not in self.paused:
            self._event_loop.call_soon_threadsafe(self._schedule, self._entries[name], seconds)

    def notify(self, tenants: set[str]) -> None:
        """Poll the jobs that react to events: some of these tenants have new ones, or of any if none is named."""
        for entry in self._entries.values():
            if entry.job.on_events is not None:
                self._schedule(entry, entry.job.on_events(tenants))

    async def drain(self, *names: str) -> None:
        """Run everything of these jobs that is due, regardless of the schedule; what fails is not retried."""
        entries = [self._entries[name] for name in names]
        for entry in entries:
            entry.queue.retry_now()
        has_more = True
        while has_more:
            has_more = False
            for entry in entries:
                await self._poll_to_end(entry)
                has_more = has_more or entry.has_more

    async def _poll_to_end(self, entry: _Entry) -> None:
        while entry.polling is not None:
            await asyncio.gather(entry.polling, return_exceptions=True)
        entry.has_more = False
        await self._poll(entry)
        while entry.tasks:
            await asyncio.wait(entry.tasks)

    async def _run(self) -> None:
        time = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            while self._heap and self._heap[0][0] <= time():
                self._poll_due(*heapq.heappop(self._heap))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._heap[0][0] if self._heap else None):
                    await self._wake.wait()

    def _schedule(self, entry: _Entry, seconds: float) -> None:
        """Poll a job after this many seconds, unless it is polled sooner anyway."""
        at = asyncio.get_running_loop().time() + seconds
        if at < entry.poll_at:
            entry.poll_at = at
            heapq.heappush(self._heap, (at, entry.job.name))
            self._wake.set()

    def _poll_due(self, at: float, name: str) -> None:
        entry = self._entries[name]
        if at != entry.poll_at or entry.polling is not None:
            # Replaced by a sooner poll, or one is under way that schedules the next.
            return
        entry.poll_at = _NEVER
        if name in self.paused:
            self._schedule(entry, entry.job.interval)
            return
        entry.polling = asyncio.create_task(self._poll_as_task(entry), name=f"weftline-poll-{name}")

    async def _poll_as_task(self, entry: _Entry) -> None:
        try:
            await self._poll(entry)
        finally:
            entry.polling = None
            # Asked for while this poll was under way.
            if entry.poll_at < _NEVER:
                heapq.heappush(self._heap, (entry.poll_at, entry.job.name))
                self._wake.set()

    async def _poll(self, entry: _Entry) -> None:
        """Look for due work, start it, and schedule the next poll."""
        wait = _NEVER

        async def look() -> None:
            nonlocal wait
            due = entry.job.due
            found = [Work()] if due is None else await due(entry.queue)
            wait = entry.queue.offer(found, asyncio.get_running_loop().time())

        if await attempt(entry.job.name, look()):
            entry.failed_polls = 0
        else:
            entry.failed_polls += 1
            wait = backoff_seconds(entry.failed_polls, random.random())  # noqa: S311 - jitter
        self._start_ready(entry)
        self._schedule(entry, max(_MIN_POLL_SECONDS, min(entry.job.interval, wait)))

    def _start_ready(self, entry: _Entry) -> None:
        while not self.stopping.is_set() and (work := entry.queue.start()) is not None:
            task = asyncio.create_task(self._run_work(entry, work), name=f"weftline-{entry.job.name}")
            entry.tasks.add(task)
            task.add_done_callback(entry.tasks.discard)

    async def _run_work(self, entry: _Entry, work: Work) -> None:
        has_more: object = False

        async def run() -> None:
            nonlocal has_more
            has_more = await entry.job.run(work)

        where = {"tenant": work.tenant} if work.tenant else {}
        succeeded = False
        try:
            succeeded = await attempt(entry.job.name, run(), **where)
        finally:
            now = asyncio.get_running_loop().time()
            retry = entry.queue.finish(work, now, failed=not succeeded)
        if retry is not None:
            self._schedule(entry, retry)
        if has_more:
            entry.has_more = True
            self._schedule(entry, 0.0)
        self._start_ready(entry)
