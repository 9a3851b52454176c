"""Sliding window: the newest messages in full, the older ones in summaries of equal share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.windows.compaction.model import Layout
from weftline.windows.compaction.strategies.call_units import call_units
from weftline.windows.compaction.strategies.kept_events import kept_events
from weftline.windows.compaction.strategies.segments import EventRange, groups_of, segment_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.windows.compaction.model import CompactionSource, EventGroup
    from weftline.windows.compaction.strategies.call_units import CallUnits


def sliding_window(source: CompactionSource) -> Layout:
    """Keep the recent messages in full; summarise the others in groups of about the same size."""
    return Layout("sliding_window", f"The newest {source.keep_recent} messages stay in full.", window_groups(source))


def window_groups(source: CompactionSource) -> list[EventGroup]:
    """Return the older events in groups whose borders do not move."""
    units = call_units(source.events)
    return groups_of(source, _segments(source, units), kept_events(source, units))


def _segments(source: CompactionSource, units: CallUnits) -> Iterator[EventRange]:
    start = 0
    for end in segment_ends(source.events, units.ends):
        yield EventRange(start, end, source.target)
        start = end
