"""Time: aware UTC datetimes, microseconds in storage, ISO 8601 with Z on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

from weftline.kernel.errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
DAY_MICROS = 86_400_000_000
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


class Clock(Protocol):
    """Source of the current time; tests inject one they control."""

    def now(self) -> datetime:
        """Return the current time as aware UTC."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def to_micros(time: datetime) -> int:
    """Return a time as it is stored; raises InvalidInput if its year in UTC is out of range."""
    micros = (time - _EPOCH) // _MICROSECOND
    if not _FIRST <= micros <= _LAST:
        raise InvalidInput("A time must lie between 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.")
    return micros


def from_micros(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND


def to_seconds(micros: int) -> float:
    return micros / 1_000_000


def optional_datetime(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
