"""Threads for what takes long, by what it is for: documents that are slow to read keep no search waiting."""

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


class Threads:
    """A few threads that do one kind of work; what is more than they can do waits for them, and for nothing else."""

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=f"weft-{name}")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        context = contextvars.copy_context()
        call = partial(context.run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


SEARCHING = Threads("searching", (os.cpu_count() or 1) + 4)
# As many as documents are parsed at once, in processes that these threads wait for, and as many for quicker work.
DOCUMENTS = Threads("documents", 4)
