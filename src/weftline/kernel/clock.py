"""Time: aware UTC datetimes, microseconds in storage, ISO 8601 with Z on the wire."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Protocol

import msgspec

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


# Times as callers write them: ISO 8601, also a date alone.

# A space before a UTC offset is a plus sign that was not escaped in a query string.
_LOST_PLUS = re.compile(r"(?<=:\d\d) (?=\d\d:\d\d$)")
_DATE_LENGTH = len("2025-01-15")
TimestampText = Annotated[
    str,
    msgspec.Meta(
        min_length=_DATE_LENGTH,
        max_length=64,
        description="ISO 8601, such as 2025-01-15T10:00:00Z or 2025-01-15T12:00:00+02:00; UTC without an offset; "
        "a date means the whole day.",
    ),
]


def parse_timestamp(name: str, text: str, *, of_day: time) -> datetime:
    """Return the timestamp in UTC; a date is taken at ``of_day``."""
    text = _LOST_PLUS.sub("+", text)
    try:
        if len(text) == _DATE_LENGTH:
            return datetime.combine(date.fromisoformat(text), of_day, UTC)
        timestamp = datetime.fromisoformat(text)
        return (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{name}: not a time in ISO 8601, such as 2025-01-15T10:00:00Z", field=name) from error


def parse_range(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """Return the first microsecond of a range, and the one after its last: both ends are inclusive."""
    start = None if since is None else to_micros(parse_timestamp("since", since, of_day=time.min))
    end = None if until is None else to_micros(parse_timestamp("until", until, of_day=time.max)) + 1
    if start is not None and end is not None and start >= end:
        raise InvalidInput("since: later than until", field="since")
    return start, end
