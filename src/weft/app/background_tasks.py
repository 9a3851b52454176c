"""Work that is done beside: begun by whoever sees that it is due, finished without keeping anybody waiting."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar, cast

from weft.jobs.periodic import attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")

_SECONDS_TO_STOP = 5.0


class BackgroundTasks:
    """Work that nobody waits for. What fails is logged, and ends nothing else."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[bool]] = set()
        # Writing takes a core for a while, so one file is written after the other.
        self._writing = asyncio.Semaphore(1)
        self.is_open = True

    def run(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        if not self.is_open:
            work.close()
            return
        task = asyncio.create_task(attempt(what, work), name=f"weft-{what}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def write(self, work: Callable[[], T]) -> T:
        """Do something that takes long, in a thread that nobody waits for at the end: half a file is no file."""
        async with self._writing:
            return await _in_a_thread_of_its_own(work)

    async def close(self) -> None:
        """Let what is nearly done be done."""
        self.is_open = False
        if self._running:
            await asyncio.wait(self._running, timeout=_SECONDS_TO_STOP)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _in_a_thread_of_its_own(work: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", result))

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = work(), None
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            outcome = None, error
        # Whoever asked may be gone.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="weft-index", daemon=True).start()
    return await done
