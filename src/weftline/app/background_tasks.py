"""Fire-and-forget tasks; failures are logged."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar, cast

from weftline.jobs.runner import attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")

_STOP_SECONDS = 5.0


class BackgroundTasks:
    """Tasks that no caller awaits."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[bool]] = set()
        # Writing a segment takes a core for a while, so one is written at a time.
        self._writing = asyncio.Semaphore(1)
        self.is_open = True

    def run(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        if not self.is_open:
            work.close()
            return
        task = asyncio.create_task(attempt(what, work), name=f"weftline-{what}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def write(self, work: Callable[[], T]) -> T:
        """Run slow work in a daemon thread: at exit it is abandoned, and an unfinished file is ignored later."""
        async with self._writing:
            return await _in_daemon_thread(work)

    async def close(self) -> None:
        """Wait a few seconds for running tasks, then cancel them."""
        self.is_open = False
        if self._running:
            await asyncio.wait(self._running, timeout=_STOP_SECONDS)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _in_daemon_thread(work: Callable[[], T]) -> T:
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
        except BaseException as error:  # noqa: BLE001 - set on the future
            outcome = None, error
        # The loop may be closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="weftline-index", daemon=True).start()
    return await done
