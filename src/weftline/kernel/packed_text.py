"""Texts in a column of bytes: as UTF-8, or compressed if that is smaller.

UTF-8 never starts with the byte that marks a compressed text.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from functools import partial
from typing import TYPE_CHECKING

from weftline.kernel.errors import Unavailable
from weftline.kernel.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[[], object]


_COMPRESSED = b"\xff"
_MIN_COMPRESSED_BYTES = 1_024
# The fastest level: it already halves text, and the write waits for it.
_LEVEL = 1


class ValueDamaged(Unavailable):
    """A stored value does not match its hash."""

    code = "VALUE_DAMAGED"
    hint = "Read another version or write the value again. An operator can verify the context and restore a backup."
    http_status = 500
    severity = "critical"
    recoverable = False
    related = ("context_history",)


def pack(value: str) -> bytes:
    """Return the bytes to store. The hash of a value is always that of its uncompressed bytes."""
    plain = value.encode()
    if len(plain) < _MIN_COMPRESSED_BYTES:
        return plain
    compressed = _COMPRESSED + zlib.compress(plain, _LEVEL)
    return compressed if len(compressed) < len(plain) else plain


def unpack(content: bytes) -> bytes:
    """Return the uncompressed bytes; damaged input yields other bytes or nothing."""
    if not content.startswith(_COMPRESSED):
        return content
    try:
        return zlib.decompress(content[1:])
    except zlib.error:
        return b""


def text_of(content: bytes) -> str:
    """Return the value as text; raises ValueDamaged for invalid bytes."""
    value = unpack(content)
    if not value and content:
        raise ValueDamaged
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueDamaged from None


# Fair turns of the event loop: work that takes time on it is started few at a time, callers one after the other.
#
# The event loop runs everything that is ready in one iteration. Without turns a caller with a thousand connections or
# event streams would be a thousand steps ahead of everyone else.

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
