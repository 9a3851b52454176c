"""Long work in short steps, so that not even the largest transcript keeps others waiting."""

from __future__ import annotations

import asyncio
import time

# A turn of a busy loop may take long to come around again, so none is given away for less work than this.
_TURN_SECONDS = 0.002


class Pace:
    """Tells when so much was done that others should have their turn."""

    __slots__ = ("_done", "_room")

    def __init__(self, room: int) -> None:
        self._room = room
        self._done = 0

    def is_over(self, done: int) -> bool:
        """Count what was done; return whether the step is at its end, which begins the next."""
        self._done += done
        if self._done < self._room:
            return False
        self._done = 0
        return True


class TimeSlices:
    """Lets others have their turn between steps, but not after every short one."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def give(self) -> None:
        """Let others go first if enough was done since they last did."""
        if time.perf_counter() - self._since > _TURN_SECONDS:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
