"""A clock for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_START = datetime(2026, 2, 20, 14, 30, tzinfo=UTC)


class FrozenClock:
    """Clock that changes only when ``advance`` is called."""

    def __init__(self, at: datetime = _START) -> None:
        self._now = at

    def now(self) -> datetime:
        return self._now

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        self._now += timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
