"""Times as texts write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from weft.kernel.clock import to_micros
from weft.kernel.errors import InvalidInput

ISO_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?"
_ISO = re.compile(ISO_TIME)
_MILLISECONDS = 10**11


def microseconds(written: object) -> int | None:
    """Return a time in microseconds since 1970, taking it for UTC if it does not say; None if it is none."""
    if isinstance(written, int | float) and not isinstance(written, bool):
        return _of_number(written)
    if not isinstance(written, str) or not _ISO.fullmatch(written.strip()):
        return None
    try:
        timestamp = datetime.fromisoformat(written.strip().replace(",", "."))
        return to_micros(timestamp.replace(tzinfo=timestamp.tzinfo or UTC))
    except (ValueError, InvalidInput):
        return None


def _of_number(number: float) -> int | None:
    """Read seconds or milliseconds since 1970; what is too small is counted from another beginning."""
    if not 10**9 <= number < 10**13:
        return None
    return int(number * 1000) if number >= _MILLISECONDS else int(number * 1_000_000)
