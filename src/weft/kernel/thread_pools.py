"""Thread pools by kind of work, so that slow documents do not delay searches; priority and memory of threads."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")

# The lowest priority of Unix.
LOWEST_PRIORITY = 19


class ThreadPool:
    """A thread pool of bounded size; further work queues."""

    def __init__(self, name: str, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=f"weft-{name}")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        context = contextvars.copy_context()
        call = partial(context.run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


SEARCH_THREADS = ThreadPool("searching", (os.cpu_count() or 1) + 4)
# Long prompts queue here rather than take the threads of searches.
ASSEMBLY_THREADS = ThreadPool("assembly", 2)
# Comparisons of versions: one caller's large texts do not take the threads of others' work.
DIFF_THREADS = ThreadPool("diff", 2)
# Compactions run in the background: one at a time, so that they never take more than one core.
COMPACTION_THREADS = ThreadPool("compaction", 1)
# Two threads wait for the worker processes that parse documents; two are for quicker work.
DOCUMENT_THREADS = ThreadPool("documents", 4)


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
