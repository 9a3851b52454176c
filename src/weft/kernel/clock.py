"""Time as the product sees it: aware UTC, microseconds in storage, ISO 8601 with Z on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
DAY_MICROS = 86_400_000_000


class Clock(Protocol):
    """Where the time comes from; tests hand in one they can move."""

    def now(self) -> datetime:
        """Return the present moment as aware UTC."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND


def to_seconds(micros: int) -> float:
    return micros / 1_000_000


def optional_moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
