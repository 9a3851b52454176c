"""Starts requests in fair turns: few in each iteration of the event loop, callers one after the other.

The event loop answers all connections that have sent something, one after the other. Without turns a caller with a
thousand connections would be a thousand requests ahead of everyone else.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from weft.kernel.fair_queue import FairQueue

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    Start = Callable[[], None]

# Started in one iteration: as many as it may take without delaying others noticeably.
_MOST, _AT_FIRST = 16, 4
_ITERATION_SECONDS = 0.003


class RequestTurns:
    """The requests of one event loop that are still to be started."""

    def __init__(self) -> None:
        self._waiting: FairQueue[Start] = FairQueue()
        self._limit = _AT_FIRST
        self._started = 0
        self._began = 0.0
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, flow: tuple[str, str], start: Start, loop: asyncio.AbstractEventLoop) -> None:
        """Start a request of a tenant and principal, in this iteration or a later one."""
        if self._started < self._limit and not self._waiting:
            self._started += 1
            start()
        else:
            self._waiting.push(*flow, start)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._began = time.perf_counter()
            loop.call_soon(self._next_turn, loop)

    def _next_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the next iteration: start those that are next in turn."""
        now = time.perf_counter()
        if now - self._began > _ITERATION_SECONDS:
            self._limit = max(1, self._limit // 2)
        elif self._started == self._limit:
            self._limit = min(_MOST, self._limit + 1)
        self._began = now
        self._started = 0
        while self._started < self._limit and (start := self._waiting.pop()) is not None:
            self._started += 1
            start()
        self._is_scheduled = self._started > 0
        if self._is_scheduled:
            loop.call_soon(self._next_turn, loop)
