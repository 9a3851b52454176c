"""Fair turns of the event loop: work that takes time on it is started few at a time, callers one after the other.

The event loop runs everything that is ready in one iteration. Without turns a caller with a thousand connections or
event streams would be a thousand steps ahead of everyone else.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from weftline.kernel.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[[], object]

# Started in one iteration: as many as it may take without delaying others noticeably.
_FEWEST, _MOST = 1, 16
_ITERATION_SECONDS = 0.003


class LoopTurns:
    """The steps of one event loop that wait for their turn: requests that begin, pages of event streams."""

    def __init__(self) -> None:
        self._waiting: FairQueue[Start] = FairQueue()
        self._limit = _FEWEST
        self._started = 0
        self._began = 0.0
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, flow: tuple[str, str], start: Start) -> None:
        """Start a step of a tenant and principal, in this iteration or a later one."""
        if self._started < self._limit and not self._waiting:
            self._started += 1
            start()
        else:
            self._waiting.push(*flow, start)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._began = time.perf_counter()
            asyncio.get_running_loop().call_soon(self._next_turn)

    async def wait(self, flow: tuple[str, str]) -> None:
        """Wait for the turn of a tenant and principal."""
        turn = asyncio.get_running_loop().create_future()
        self.start(flow, partial(_grant, turn))
        await turn

    def _next_turn(self) -> None:
        """Begin the next iteration: start those that are next in turn."""
        now = time.perf_counter()
        if now - self._began > _ITERATION_SECONDS:
            self._limit = max(_FEWEST, self._limit // 2)
        elif self._started == self._limit:
            self._limit = min(_MOST, self._limit + 1)
        self._began = now
        self._started = 0
        while self._started < self._limit and (start := self._waiting.pop()) is not None:
            self._started += 1
            start()
        self._is_scheduled = self._started > 0
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._next_turn)


def _grant(turn: asyncio.Future[None]) -> None:
    # Who was cancelled meanwhile needs none.
    if not turn.done():
        turn.set_result(None)
