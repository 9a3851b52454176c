"""The queue of SQLite's writer thread: fair by tenant and principal, bounded for each of them."""

from __future__ import annotations

import queue
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from weftline.kernel.fair_queue import FairQueue, server_busy

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Scope

# Writes of one principal that wait; more are refused. So is a write that has waited longer than this.
MAX_WAITING = 2_000
MAX_WAIT_SECONDS = 10.0
# Work of one commit: its first writes wait for the last. Time of the processor, because a thread that waits for its
# turn has done nothing.
GROUP_SECONDS = 0.02
# The same while no other principal waits: one that arrives is next, and then the group ends.
LONE_GROUP_SECONDS = 0.06
GROUP_LIMIT = 512
_GATHER_SECONDS = 0.0005
# The next write of a principal whose last one took longer than this is committed without others.
_SLOW_SECONDS = 0.005
_MAX_SLOW_FLOWS = 10_000
# Writes up to this long are measured by the time that passed.
_SHORT_SECONDS = 0.001


class WriteJob:
    """One queued write."""

    __slots__ = ("done", "error", "flow", "queued_at", "result", "scope", "work")

    def __init__(self, scope: Scope, work: Callable[[Transaction], Awaitable[Any]], done: asyncio.Future[Any]) -> None:
        self.scope = scope
        self.work = work
        self.done = done
        self.flow = (scope.tenant or "", scope.principal)
        self.queued_at = time.perf_counter()
        self.result: Any = None
        self.error: BaseException | None = None


class WorkClock:
    """Measures the processor time of the writes of a group, one after the other.

    Reading that clock is a system call. So a short write counts the time that passed, which is never less, and the
    next long one is corrected by as much as that was too much.
    """

    __slots__ = ("_read_at", "_started", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self._started = time.thread_time()
        self._read_at = time.perf_counter()

    def lap(self) -> float:
        """Return the time of the write that ended now."""
        now = time.perf_counter()
        passed, self._read_at = now - self._read_at, now
        if passed > _SHORT_SECONDS:
            passed = max(0.0, time.thread_time() - self._started - self.total)
        self.total += passed
        return passed


class WriteQueue:
    """Writes in the order of fair queueing, charged with the time they take. Background work is never refused.

    ``put`` and ``settle`` belong to the event loop, everything else to the writer thread.
    """

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._fair: FairQueue[WriteJob] = FairQueue()
        # Its length, which is asked for at every write.
        self._in_fair = 0
        # Writes of one principal while nobody else waits: their order is that of arrival.
        self._of_one: deque[WriteJob] = deque()
        self._unsettled: dict[tuple[str, str], int] = {}
        self._next: WriteJob | None = None
        self._slow: set[tuple[str, str]] = set()
        self._is_closed = False

    def put(self, job: WriteJob) -> None:
        """Queue a write; raises ServerBusy if too many of its principal wait."""
        unsettled = self._unsettled.get(job.flow, 0)
        if unsettled >= MAX_WAITING and job.scope.principal:
            raise server_busy(1.0)
        self._unsettled[job.flow] = unsettled + 1
        self._arrived.put(job)

    def settle(self, job: WriteJob) -> None:
        """Forget a write that was answered."""
        left = self._unsettled[job.flow] - 1
        if left:
            self._unsettled[job.flow] = left
        else:
            del self._unsettled[job.flow]

    def close(self) -> None:
        """End the writer thread once everything queued is written."""
        self._arrived.put(None)

    def first(self, expected: int) -> WriteJob | None:
        """Wait for a write to begin a group with; None once the queue is closed and empty.

        Callers that were answered together often write again together; an fsync for half of them would be wasted. So
        it waits briefly for as many as the last group had.
        """
        if self._next is None and not self._in_fair and not self._of_one:
            arrived = None if self._is_closed else self._arrived.get()
            if arrived is None:
                return None
            self._of_one.append(arrived)
        if expected > 1 and self._arrived.qsize() + len(self._of_one) + self._in_fair < expected:
            time.sleep(_GATHER_SECONDS)
        return self._pop()

    def following(self) -> WriteJob | None:
        """Return the next write for the same commit; None if there is none, or if it will probably take long."""
        job = self._pop()
        if job is None or job.flow not in self._slow:
            return job
        self._next = job
        return None

    def is_time_spent(self, seconds: float) -> bool:
        """Tell whether a group that took this long should be committed now."""
        return seconds > (GROUP_SECONDS if self._in_fair else LONE_GROUP_SECONDS)

    def charge(self, job: WriteJob, seconds: float) -> None:
        """Charge the time that a write took to its principal."""
        if self._in_fair:
            self._fair.charge(*job.flow, seconds)
        if seconds > _SLOW_SECONDS:
            if len(self._slow) >= _MAX_SLOW_FLOWS:
                self._slow.clear()
            self._slow.add(job.flow)
        elif self._slow:
            self._slow.discard(job.flow)

    def _pop(self) -> WriteJob | None:
        job, self._next = self._next, None
        if job is not None:
            return job
        while not self._arrived.empty():
            self._add(self._arrived.get())
        if self._of_one:
            return self._of_one.popleft()
        if not self._in_fair:
            return None
        self._in_fair -= 1
        return self._fair.pop()

    def _add(self, job: WriteJob | None) -> None:
        if job is None:
            self._is_closed = True
        elif not self._in_fair and (not self._of_one or self._of_one[0].flow == job.flow):
            self._of_one.append(job)
        else:
            for each in (*self._of_one, job):
                self._fair.push(*each.flow, each)
                self._in_fair += 1
            self._of_one.clear()
