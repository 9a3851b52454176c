"""Decoding of large JSON: bounded, and spread over time.

Decoding takes time for each value, not for each byte, and nothing else runs meanwhile: the decoder keeps the
interpreter's lock, in a thread as well. So the values of a large body are counted first, in short steps; a body with
many waits for its turn, and after each decoding comes a rest in which everybody else has their turn.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from weftline.kernel.errors import ContentTooLarge
from weftline.kernel.fair_queue import FairSlots
from weftline.kernel.thread_pools import SHORT_THREADS, return_free_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.kernel.identity import Actor


T = TypeVar("T")

# Below, decoding takes no longer than a small query whatever the body contains.
_SMALL_BYTES = 32_768
_FEW_VALUES = 4_000
MAX_VALUES = 100_000
_STEP_BYTES = 65_536
# Time for a value, and the rest after a decoding as a multiple of its time.
_VALUE_SECONDS = 0.000_000_5
_REST = 24
_MAX_WAIT_SECONDS = 20.0
_MAX_WAITING = 8


class JsonBodies:
    """Decodes the bodies of one process."""

    def __init__(self) -> None:
        self._turns = FairSlots(1, share=1, max_wait_seconds=_MAX_WAIT_SECONDS, max_waiting=_MAX_WAITING)

    async def decode(self, decode: Callable[[bytes], T], body: bytes, caller: Actor) -> T:
        """Decode a body; raises ContentTooLarge if it has too many values, ServerBusy if it would wait too long."""
        await self.pace(body, (caller.tenant, caller.path))
        return decode(body)

    async def pace(self, body: bytes, turn: tuple[str, str]) -> None:
        """Wait until a body of a tenant and principal may be decoded; raises as ``decode``."""
        if len(body) <= _SMALL_BYTES:
            return
        values = await _count_values(body)
        if values > MAX_VALUES:
            raise ContentTooLarge(
                f"The body has more than {MAX_VALUES} JSON values.",
                hint="Send it in several calls, or as text.",
                limit_values=MAX_VALUES,
            )
        if values > _FEW_VALUES:
            rest = values * _VALUE_SECONDS * _REST
            await self._turns.take(*turn)
            asyncio.get_running_loop().call_later(rest, self._turns.give_back, *turn, rest)


async def _count_values(body: bytes) -> int:
    """Return about how many values JSON has: separators and opening brackets that are not part of a text."""
    values, start, in_text = 1, 0, False
    while start < len(body):
        step = body[start : start + _STEP_BYTES]
        if (len(step) - len(step.rstrip(b"\\"))) % 2:
            # An escape is not cut in two.
            step = body[start : start + _STEP_BYTES + 1]
        start += len(step)
        parts = step.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[in_text::2])
        in_text ^= len(parts) % 2 == 0
        values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if values > MAX_VALUES:
            break
        await asyncio.sleep(0)
    return values


# Returns memory to the operating system after calls that needed much of it.

# Less is not worth the time: it is needed again soon.
_GROWTH_BYTES = 64 * 2**20


class FreedMemory:
    """What this process has freed and still holds: glibc keeps it for the threads that needed it.

    ``least``: its resident memory after the last look.
    """

    def __init__(self) -> None:
        self._least = _resident_bytes()

    async def give_back(self) -> None:
        """Give memory back if much was taken since the last time."""
        if self._has_grown():
            await SHORT_THREADS.run(return_free_memory)
        if self._has_grown():
            # Texts in reference cycles: the collector looks for them rarely, and counts objects, not their size.
            await SHORT_THREADS.run(gc.collect)
            await SHORT_THREADS.run(return_free_memory)
            self._least = _resident_bytes()

    def _has_grown(self) -> bool:
        now = _resident_bytes()
        self._least = min(self._least, now)
        return now > self._least + _GROWTH_BYTES


def _resident_bytes() -> int:
    """Return the resident memory of this process; 0 where memory is not returned either."""
    if sys.platform != "linux":
        return 0
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
