"""Circuit breaker: after repeated failures no call is made for a while, then one to see whether it works again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_FAILURES = 5
_MIN_OPEN_SECONDS = 15.0
_MAX_OPEN_SECONDS = 300.0


class CircuitBreaker:
    """Opens after failures in a row; each failed probe doubles the time until the next."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures = 0
        self._open_until = 0.0
        self._open_seconds = _MIN_OPEN_SECONDS
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        return self._failures >= _MAX_FAILURES

    def admits(self) -> bool:
        """Tell whether a call may be made. While open, one call after the pause is admitted as a probe."""
        if not self.is_open:
            return True
        if self._is_probing or self._now() < self._open_until:
            return False
        self._is_probing = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._open_seconds = _MIN_OPEN_SECONDS
        self._is_probing = False

    def failed(self, retry_after: float | None = None) -> None:
        """Note a failure; the pause is at least what the endpoint asked for."""
        self._failures += 1
        if self.is_open:
            if self._is_probing:
                self._open_seconds = min(self._open_seconds * 2, _MAX_OPEN_SECONDS)
            pause = max(self._open_seconds, min(retry_after or 0.0, _MAX_OPEN_SECONDS))
            self._open_until = self._now() + pause
        self._is_probing = False

    def abandoned(self) -> None:
        """Note that a call ended without saying anything about the endpoint: it was cancelled, or ran out of time."""
        self._is_probing = False
