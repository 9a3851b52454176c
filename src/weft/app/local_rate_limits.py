"""Sliding-window counters in this process's memory.

The same estimate that ``limits`` makes with Valkey. Its own memory storage looks through the counters of every caller
at each call, which thousands of agents make expensive; these look at one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from limits import RateLimitItem

_REMEMBER_AT_MOST = 100_000


class LocalRateLimits:
    """Counts calls in the present window and weighs in what is left of the one before."""

    def __init__(self) -> None:
        # By limit and caller: the window's number, its calls, and the calls of the window before.
        self._windows: dict[tuple[str, ...], tuple[int, int, int]] = {}

    def hit(self, item: RateLimitItem, *who: str) -> bool:
        """Count a call; False, uncounted, if it is one too many."""
        key = (str(item.amount), str(item.get_expiry()), *who)
        number, elapsed = divmod(time.time(), item.get_expiry())
        known, calls, before = self._windows.get(key, (0, 0, 0))
        if known != number:
            calls, before = 0, calls if known == number - 1 else 0
        if calls + before * (1 - elapsed / item.get_expiry()) >= item.amount:
            return False
        if len(self._windows) >= _REMEMBER_AT_MOST:
            self._windows.clear()
        self._windows[key] = (int(number), calls + 1, before)
        return True

    @staticmethod
    def reset_in(item: RateLimitItem) -> float:
        """Return the seconds until the next window."""
        return item.get_expiry() - time.time() % item.get_expiry()
