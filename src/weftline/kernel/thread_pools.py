"""Thread pools by kind of work, so that slow documents do not delay searches; priority and memory of threads."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import os
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from weftline.kernel.fair_queue import FairQueue, Shares, server_busy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from weftline.kernel.errors import ServerBusy

P = ParamSpec("P")
T = TypeVar("T")

_MAX_WAITING = 1_000
_MAX_WAIT_SECONDS = 30.0
# Background work waits for hours rather than fail.
_MAX_BACKGROUND_SECONDS = 86_400.0
# The lowest priority of Unix.
LOWEST_PRIORITY = 19


# The tenant and principal that the current task works for, by which threads are shared.
CALLER: ContextVar[tuple[str, str]] = ContextVar("weftline_caller", default=("", ""))


class _Job:
    """Work that waits for a thread."""

    __slots__ = ("done", "flow", "work")

    def __init__(self, flow: tuple[str, str], work: Callable[[], Any]) -> None:
        self.flow = flow
        self.work = work
        self.done: Future[Any] = Future()


# Of a thread that runs a whole coroutine.
_here = threading.local()


def _run_to_end(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    running = work()
    _here.runs_whole = True
    try:
        running.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        _here.runs_whole = False
        running.close()
    raise RuntimeError("a coroutine in a thread waited for something else")


class ThreadPool:
    """A thread pool of bounded size, shared fairly by tenants and principals; further work queues.

    ``share`` is the part of the threads that one tenant may take, as in FairSlots. More than ``max_waiting`` calls of
    one principal, or a wait above ``max_wait_seconds``, raises ServerBusy.
    """

    def __init__(
        self,
        name: str,
        size: int,
        *,
        share: float = 0.5,
        max_waiting: int = _MAX_WAITING,
        max_wait_seconds: float = _MAX_WAIT_SECONDS,
    ) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=f"weftline-{name}")
        self._size = size
        self._shares = Shares(size, share)
        self._max_waiting = max_waiting
        self._max_wait_seconds = max_wait_seconds
        self._queue: FairQueue[_Job] = FairQueue()
        self._lock = threading.Lock()
        self._running = 0
        self._mean_seconds = 0.0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work in a thread, for the caller of the current task: in this one inside of ``run_whole``."""
        if getattr(_here, "runs_whole", False):
            return work(*args, **kwargs)
        context = contextvars.copy_context()
        return await self.run_for(CALLER.get(), partial(context.run, work, *args, **kwargs))

    async def run_whole(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine that waits for nothing but threads in one thread: its steps do not change threads."""
        return await self.run(_run_to_end, partial(work, *args, **kwargs))

    async def run_for(self, flow: tuple[str, str], work: Callable[[], T]) -> T:
        """Run work in a thread, for a tenant and principal."""
        job = _Job(flow, work)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = asyncio.wrap_future(job.done, loop=loop)
        if self._start_now(job):
            self._pool.submit(self._serve, job)
            return await done
        with self._lock:
            if flow[1] and self._queue.waiting(*flow) >= self._max_waiting:
                raise self._busy()
            self._queue.push(*flow, job)
        self._pool.submit(self._serve)
        deadline = loop.call_later(self._max_wait_seconds, self._give_up, job)
        try:
            return await done
        except asyncio.CancelledError:
            self._take_back(job)
            raise
        finally:
            deadline.cancel()

    def shutdown(self) -> None:
        """Wait for the work that runs; its threads end."""
        self._pool.shutdown()

    def _start_now(self, job: _Job) -> bool:
        """Start a job where nobody waits, a thread is free and its share is not full: it is the next in any order.

        Searches come here dozens of times a call, nearly always alone; their turn among others costs 70 calls.
        """
        with self._lock:
            if self._queue or self._running >= self._size or self._shares.full(*job.flow):
                return False
            self._start(job)
            return job.done.set_running_or_notify_cancel()

    def _serve(self, job: _Job | None = None) -> None:
        """Run a job that was started, then what is next in turn until nothing is left that may run now.

        Every job brings its own call of this, so nothing is forgotten: what a full share holds back is run by the
        thread that gives a place back.
        """
        job = job or self._next()
        while job is not None:
            started = time.monotonic()
            try:
                job.done.set_result(job.work())
            except BaseException as error:  # noqa: BLE001 - for the caller that waits
                job.done.set_exception(error)
            finally:
                self._finished(job, time.monotonic() - started)
            job = self._next()

    def _next(self) -> _Job | None:
        with self._lock:
            while self._queue and (job := self._queue.pop(self._shares.full)) is not None:
                if job.done.set_running_or_notify_cancel():
                    self._start(job)
                    return job
            return None

    def _start(self, job: _Job) -> None:
        self._running += 1
        self._shares.take(*job.flow)

    def _finished(self, job: _Job, seconds: float) -> None:
        with self._lock:
            self._mean_seconds += (seconds - self._mean_seconds) / 16
            self._running -= 1
            self._shares.give_back(*job.flow)
            self._queue.charge(*job.flow, seconds)

    def _give_up(self, job: _Job) -> None:
        """Refuse work that has waited too long; what runs already is let finish."""
        if self._take_back(job):
            job.done.set_exception(self._busy())

    def _take_back(self, job: _Job) -> bool:
        with self._lock:
            return self._queue.remove(*job.flow, job)

    def _busy(self) -> ServerBusy:
        return server_busy(self._mean_seconds * (1 + len(self._queue) / self._size))


SEARCH_THREADS = ThreadPool("searching", (os.cpu_count() or 1) + 4)
# Work that takes milliseconds, and waits for files.
SHORT_THREADS = ThreadPool("short", (os.cpu_count() or 1) + 4)
# Long prompts queue here rather than take the threads of searches.
ASSEMBLY_THREADS = ThreadPool("assembly", 3, share=2 / 3)
# Comparing and rendering large texts: those of one caller do not take the threads of others' work.
TEXT_THREADS = ThreadPool("text", 3, share=2 / 3)
# Compactions run in the background: one at a time, so that they never take more than one core.
COMPACTION_THREADS = ThreadPool("compaction", 1, max_wait_seconds=_MAX_BACKGROUND_SECONDS)
# Two threads wait for the worker processes that parse documents; two are for quicker work.
DOCUMENT_THREADS = ThreadPool("documents", 4, share=0.75, max_wait_seconds=_MAX_BACKGROUND_SECONDS)


class _Turns:
    """How often threads take turns, and how many pieces of long work ask for shorter ones."""

    seconds = sys.getswitchinterval()
    short_seconds = 0.0005
    asking = 0
    lock = threading.Lock()


@contextmanager
def short_turns() -> Iterator[None]:
    """Let threads take turns more often during long work in a thread, so that the event loop waits less for its own."""
    with _Turns.lock:
        _Turns.asking += 1
        sys.setswitchinterval(_Turns.short_seconds)
    try:
        yield
    finally:
        with _Turns.lock:
            _Turns.asking -= 1
            if not _Turns.asking:
                sys.setswitchinterval(_Turns.seconds)


def always_short_turns() -> None:
    """Let threads take turns more often for the rest of the process: one that serves many callers on its event loop.

    The loop waits for a turn after every statement of a read, and a thread that computes keeps its turn to the end.
    """
    with _Turns.lock:
        _Turns.seconds = _Turns.short_seconds
        sys.setswitchinterval(_Turns.seconds)


def lower_priority() -> None:
    """Give the calling thread the lowest priority, so that it runs on what others leave.

    Only Linux has priorities of threads; elsewhere this does nothing.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)


def return_free_memory() -> None:
    """Return memory that was freed to the operating system: glibc keeps it otherwise. Does nothing elsewhere."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
