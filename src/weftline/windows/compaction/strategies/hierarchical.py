"""Hierarchical: summaries by minute, hour, day and week; the older, the coarser and the smaller their share.

Levels follow the calendar (UTC): minutes within the hour of the newest event, hours within its day, days within its
week, weeks before that. So borders move only when an hour, a day or a week ends.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from weftline.windows.compaction.model import Layout
from weftline.windows.compaction.strategies.call_units import call_units
from weftline.windows.compaction.strategies.kept_events import kept_events
from weftline.windows.compaction.strategies.segments import EventRange, groups_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.windows.compaction.model import CompactionSource
    from weftline.windows.model import WindowEvent

_MINUTE = 60 * 1_000_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
# The epoch was a Thursday; weeks begin on Monday.
_EPOCH_DAYS = 3
_LARGEST_SHARE = 0.9
_STEP = 0.25


class _Level(NamedTuple):
    """``share`` is relative to the target. Segments have at least and at most so many tokens."""

    name: str
    share: float
    least: int
    most: int


_LEVELS = (
    _Level("minute", 1.0, 400, 2_000),
    _Level("hour", 0.8, 0, 4_000),
    _Level("day", 0.6, 0, 6_000),
    _Level("week", 0.4, 0, 8_000),
)


class _Bucket(NamedTuple):
    """A minute, hour, day or week, by the number of its level and its own."""

    level: int
    number: int


def hierarchical(source: CompactionSource) -> Layout:
    """Summarise the older events by minute, hour, day and week."""
    units = call_units(source.events)
    parts = list(_parts(source.events, units.ends))
    boost = _boost(source.events, parts)
    segments = [
        EventRange(start, end, _share(source.target, bucket, boost), _title(bucket, source.events[start:end]))
        for start, end, bucket in parts
    ]
    groups = groups_of(source, segments, kept_events(source, units))
    used = Counter(bucket.level for _, _, bucket in parts)
    levels = ", ".join(f"{_count(used[level], level)}" for level in sorted(used))
    return Layout("hierarchical", f"Events are summarised by time: {levels}.", groups)


def _parts(events: Sequence[WindowEvent], ends: Sequence[int]) -> Iterator[tuple[int, int, _Bucket]]:
    """Yield start, end and bucket of the segments."""
    newest = max((event.time for event in events), default=0)
    start = last = tokens = 0
    current: _Bucket | None = None
    for end in ends:
        bucket = _bucket(events[last].time, newest)
        if current is not None and tokens and _is_over(current, bucket, tokens):
            yield start, last, current
            start, tokens, current = last, 0, None
        current = current or bucket
        tokens += sum(event.tokens for event in events[last:end])
        last = end
    if current is not None:
        yield start, last, current


def _is_over(current: _Bucket, bucket: _Bucket, tokens: int) -> bool:
    """Tell whether a segment ends before a bucket; a few quiet minutes are one segment."""
    level = _LEVELS[current.level]
    if bucket.level != current.level or tokens >= level.most:
        return True
    return bucket.number != current.number and tokens >= level.least


def _bucket(at: int, newest: int) -> _Bucket:
    if at // _HOUR == newest // _HOUR:
        return _Bucket(0, at // _MINUTE)
    if at // _DAY == newest // _DAY:
        return _Bucket(1, at // _HOUR)
    if _week(at) == _week(newest):
        return _Bucket(2, at // _DAY)
    return _Bucket(3, _week(at))


def _week(at: int) -> int:
    return (at // _DAY + _EPOCH_DAYS) // 7


def _share(target: float, bucket: _Bucket, boost: float) -> float:
    return min(target * _LEVELS[bucket.level].share * boost, max(_LARGEST_SHARE, target))


def _boost(events: Sequence[WindowEvent], parts: Sequence[tuple[int, int, _Bucket]]) -> float:
    """Return the factor by which all shares grow, because the coarse levels leave room.

    It changes in steps only: between them summaries stay the same when events are appended.
    """
    total, used = 0, 0.0
    for start, end, bucket in parts:
        tokens = sum(event.tokens for event in events[start:end])
        total += tokens
        used += tokens * _LEVELS[bucket.level].share
    return max(total / used // _STEP * _STEP, 1.0) if used else 1.0


def _title(bucket: _Bucket, events: Sequence[WindowEvent]) -> str:
    first, last = (_time(events[at].time) for at in (0, -1))
    if bucket.level == 0:
        return f"{first:%Y-%m-%d %H:%M} to {last:%H:%M}"
    if bucket.level == 1:
        return f"{first:%Y-%m-%d %H}:00 to {first:%H}:59"
    if bucket.level == 2:  # noqa: PLR2004 - days
        return f"{first:%Y-%m-%d}"
    return f"Week from {first - timedelta(days=first.weekday()):%Y-%m-%d}"


def _time(micros: int) -> datetime:
    return datetime.fromtimestamp(micros // 1_000_000, UTC)


def _count(number: int, level: int) -> str:
    return f"{number} by {_LEVELS[level].name}"
