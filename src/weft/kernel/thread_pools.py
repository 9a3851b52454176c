"""Thread pools by kind of work, so that slow documents do not delay searches."""

from __future__ import annotations

import asyncio
import contextvars
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


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
# Two threads wait for the worker processes that parse documents; two are for quicker work.
DOCUMENT_THREADS = ThreadPool("documents", 4)
