"""Which events stay in full whatever the strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.safety.trust.model import Trust
from weftline.windows.model import Category, is_instruction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.windows.compaction.model import CompactionSource
    from weftline.windows.compaction.strategies.call_units import CallUnits
    from weftline.windows.model import WindowEvent

# A request that took this many events to work on stays in full up to this size: it says what the work was for.
_LONG_WORK = 12
_MAX_REQUEST_TOKENS = 500


def kept_events(source: CompactionSource, units: CallUnits) -> frozenset[int]:
    """Return the positions of events that stay in full, with the calls and results that belong to them."""
    kept = {at for at, event in enumerate(source.events) if _always_stays(event)}
    kept |= units.unfinished
    kept.update(range(_first_recent(source), len(source.events)))
    kept.update(_requests(source.events, source.keep_recent))
    return units.whole(frozenset(kept))


def _first_recent(source: CompactionSource) -> int:
    """Return the position of the first recent event; it only moves forward when events are added."""
    first = max(len(source.events) - source.keep_recent, 0)
    if source.recent_tokens is None:
        return first
    room = source.recent_tokens
    for at in reversed(range(first, len(source.events))):
        room -= source.events[at].tokens
        if room < 0:
            return at + 1
    return first


def _always_stays(event: WindowEvent) -> bool:
    """Tell whether an event is an instruction, pinned, redacted, of another window, or under suspicion."""
    is_suspicious = event.trust is not None and event.trust.trust is Trust.SUSPICIOUS
    return is_instruction(event) or event.pinned or event.redacted or event.routed or is_suspicious


def _requests(events: Sequence[WindowEvent], keep_recent: int) -> Iterator[int]:
    """Yield the newest request of the user, and the earlier ones that were worked on for long.

    Those were once the newest ones and older than the recent events. That they stay then too means that the summaries
    around them do not change when the user says something new.
    """
    until, long_work = len(events), max(keep_recent, _LONG_WORK)
    for at in reversed(range(len(events))):
        if not _is_request(events[at]):
            continue
        took_long = until - at > long_work and events[at].tokens <= _MAX_REQUEST_TOKENS
        if until == len(events) or took_long:
            yield at
        until = at


def _is_request(event: WindowEvent) -> bool:
    return event.message.role == "user" and event.category is Category.DIALOG and not event.routed
