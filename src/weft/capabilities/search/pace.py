"""Long work in short steps, so that not even the largest transcript keeps others waiting."""

from __future__ import annotations


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
