"""Sliding windows: a rate, the counter of its calls, and how long a refused call must wait.

A counter has the calls of the current window and those of the one before, of which the remaining share counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND = 1_000
# A counter says nothing about calls that are two windows old.
MAX_AGE_WINDOWS = 2


class Rate(NamedTuple):
    """At most ``amount`` calls in ``seconds``."""

    amount: int
    seconds: int
    text: str

    def times(self, factor: int) -> Rate:
        amount = self.amount * factor
        return Rate(amount, self.seconds, f"{amount}{self.text.removeprefix(str(self.amount))}")


class RequiredWait(NamedTuple):
    """Seconds until the call passes, and the rate that takes longest."""

    seconds: int
    rate: Rate


class WindowCounter(NamedTuple):
    """Number of a window, its calls, and calls of the window before. Times are in milliseconds."""

    number: int = 0
    calls: int = 0
    before: int = 0

    def at(self, number: int) -> WindowCounter:
        """Return the counter as it is in a later window."""
        if number == self.number:
            return self
        return WindowCounter(number, 0, self.calls if number == self.number + 1 else 0)

    def calls_at(self, rate: Rate, now: int) -> int:
        """Return the calls of the last window: those of this one, and the remaining share of the one before."""
        window = rate.seconds * SECOND
        return self.calls + self.before * (window - now % window) // window

    def wait(self, rate: Rate, now: int) -> int:
        """Return the milliseconds until one more call passes; 0 if it passes now.

        It passes as soon as ``calls + before * remaining / window < amount``, where ``remaining`` is the rest of the
        window.
        """
        window = rate.seconds * SECOND
        remaining = window - now % window
        if self.calls < rate.amount:
            room = (rate.amount - self.calls) * window
            return max(0, remaining - (room - 1) // self.before) if self.before else 0
        # Not before the next window, when the calls of this one count by their remaining share.
        return remaining + window - (rate.amount * window - 1) // max(self.calls, 1)


def required_wait(rates: Sequence[Rate], counters: Sequence[WindowCounter], now: int) -> RequiredWait | None:
    waits = [(counter.wait(rate, now), rate) for rate, counter in zip(rates, counters, strict=True)]
    wait, rate = max(waits)
    return RequiredWait(-(-wait // SECOND), rate) if wait else None
