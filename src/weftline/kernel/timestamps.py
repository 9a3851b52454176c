"""Times as callers write them: ISO 8601, also a date alone."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from typing import Annotated

import msgspec

from weftline.kernel.clock import to_micros
from weftline.kernel.errors import InvalidInput

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
