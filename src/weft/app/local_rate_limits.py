"""Sliding-window rate limits in memory.

The same estimate as ``limits`` makes with Valkey. The memory storage of ``limits`` scans the counters of all callers on
each call, which is expensive with thousands of agents; this one looks at one counter.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from limits import RateLimitItem

_MAX_COUNTERS = 100_000


class LocalRateLimits:
    """Counts calls in the current window, plus the remaining share of the previous one."""

    def __init__(self) -> None:
        # By limit and caller: number of the window, its calls, calls of the previous window.
        self._windows: dict[tuple[str, ...], tuple[int, int, int]] = {}

    def hit(self, item: RateLimitItem, *who: str) -> bool:
        """Count a call; False, without counting it, if it exceeds the limit."""
        key = (str(item.amount), str(item.get_expiry()), *who)
        number, elapsed = divmod(time.time(), item.get_expiry())
        known, calls, before = self._windows.get(key, (0, 0, 0))
        if known != number:
            calls, before = 0, calls if known == number - 1 else 0
        if calls + before * (1 - elapsed / item.get_expiry()) >= item.amount:
            return False
        if len(self._windows) >= _MAX_COUNTERS:
            self._windows.clear()
        self._windows[key] = (int(number), calls + 1, before)
        return True

    @staticmethod
    def reset_in(item: RateLimitItem) -> float:
        """Return the seconds until the next window."""
        return item.get_expiry() - time.time() % item.get_expiry()
