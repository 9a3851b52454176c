"""Segments of a window at borders that do not move when events are appended, and the groups made of them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from weftline.windows.compaction.model import EventGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weftline.windows.compaction.model import CompactionSource
    from weftline.windows.model import WindowEvent

SEGMENT_TOKENS = 4_000
# Fewer tokens stay as they are: a summary would hardly be shorter.
MIN_GROUP_TOKENS = 64
# The title of fewer tokens has no times: they would take too much of the room of the summary.
_LEAST_TIMED = 1_000
# A result of a tool keeps what these many next events refer to.
_FOLLOWING = 8
_SECOND_IN_MICROS = 1_000_000


class EventRange(NamedTuple):
    """Events from ``start`` to before ``end``, and the part of their tokens that a summary may take."""

    start: int
    end: int
    share: float
    title: str = ""


def segment_ends(
    events: Sequence[WindowEvent], ends: Iterable[int], start: int = 0, tokens: int = SEGMENT_TOKENS
) -> Iterator[int]:
    """Yield the ends of segments: the possible borders at which at least ``tokens`` have come together."""
    size, last = 0, start
    for end in ends:
        size += sum(event.tokens for event in events[last:end])
        last = end
        if size >= tokens:
            yield end
            size = 0
    if size:
        yield last


def groups_of(source: CompactionSource, segments: Iterable[EventRange], kept: frozenset[int]) -> list[EventGroup]:
    """Return the groups in segments: the runs of events that do not stay."""
    return [group for segment in segments for group in _groups(source, segment, kept)]


def _groups(source: CompactionSource, segment: EventRange, kept: frozenset[int]) -> Iterator[EventGroup]:
    for stays, positions in groupby(range(segment.start, segment.end), kept.__contains__):
        if stays:
            continue
        run = list(positions)
        events = source.events[run[0] : run[-1] + 1]
        tokens = sum(event.tokens for event in events)
        if tokens >= MIN_GROUP_TOKENS:
            yield EventGroup(
                segment.title or title_of(events),
                events,
                max(int(tokens * segment.share), 1),
                # No more than the recent events, so that they are the same when events are appended.
                source.events[run[-1] + 1 : run[-1] + 1 + min(_FOLLOWING, source.keep_recent)],
            )


def title_of(events: Sequence[WindowEvent]) -> str:
    """Return the numbers and times of events as a title; over several days, only their dates; for few, no times."""
    first, last = events[0], events[-1]
    numbers = f"Event {first.number}" if first is last else f"Events {first.number} to {last.number}"
    if sum(event.tokens for event in events) < _LEAST_TIMED:
        return numbers
    begin, end = time_text(first.time), time_text(last.time)
    if begin == end:
        return f"{numbers}, {begin}"
    (begin_day, _, _), (day, _, hour) = begin.partition(" "), end.partition(" ")
    return f"{numbers}, {begin} to {hour}" if begin_day == day else f"{numbers}, {begin_day} to {day}"


def time_text(micros: int) -> str:
    """Return a time as UTC date and minute."""
    return f"{datetime.fromtimestamp(micros // _SECOND_IN_MICROS, UTC):%Y-%m-%d %H:%M}"
