"""What of the log a caller waits for: events that were not looked at yet and tell of something it could find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.events.model import EventFilter
from weft.capabilities.search.session_indexing.cursor import IMPORTED, subject_of

if TYPE_CHECKING:
    from weft.capabilities.search.scope import RequestedScope
    from weft.kernel.events import StoredEvent
    from weft.kernel.identity import Actor

_EVERYTHING = EventFilter()


def is_awaited(recorded: StoredEvent, actor: Actor, part: RequestedScope) -> bool:
    """Tell whether a search of this part may miss what an event tells of, and its caller may be told of that."""
    return (
        _is_searched(recorded, part) and part.reaches(recorded.event.session_id) and _EVERYTHING.covers(recorded, actor)
    )


def _is_searched(recorded: StoredEvent, part: RequestedScope) -> bool:
    subject = subject_of(recorded)
    if subject is not None:
        return subject.source in part.wanted
    return recorded.event.type == IMPORTED and bool(part.in_sessions)
