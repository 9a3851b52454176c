"""Returns memory to the operating system after calls that needed much of it."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from weftline.kernel.thread_pools import SHORT_THREADS, return_free_memory

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
