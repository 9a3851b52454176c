"""Window events as a search reads them: on the line that the agent is on, without redacted and held ones."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from weftline.access.model import AgentNotFound
from weftline.history.model import BranchNotFound
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.identity import principal_of
from weftline.search.items import WindowPlace
from weftline.sessions.model import NotMember, SessionNotFound
from weftline.windows.model import Category, WindowNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.identity import Actor
    from weftline.search.stores import SearchStores
    from weftline.windows.model import Window, WindowEvent

# Notes of Weftline and of workflows are not part of what was said.
NOT_SEARCHABLE = frozenset({Category.INTERNAL})


async def own_places(session_id: str | None, stores: SearchStores) -> frozenset[str]:
    """Return the places of the caller's own windows, in one session or in all; shared ones are their owner's."""
    store, agent_id = stores.windows.store, stores.actor.principal_id
    if session_id is None:
        return frozenset(str(WindowPlace(*each)) for each in await store.owners_of(agent_id))
    settings = await store.find(session_id, agent_id)
    if settings is None:
        return frozenset()
    return frozenset({str(WindowPlace(session_id, settings.shares_with or agent_id))})


async def open_place(place: str, stores: SearchStores) -> Window | None:
    """Return the window of a place; None if the caller may not open it."""
    session_id, owner = WindowPlace.parse(place)
    own = place in await own_places(session_id, stores)
    try:
        window = await stores.windows.open(session_id, None if own else owner)
    except (SessionNotFound, WindowNotFound, AgentNotFound, PermissionDenied, NotMember, BranchNotFound):
        return None
    return window if window.events_of == owner else None


async def live_events(place: str, stores: SearchStores) -> Sequence[WindowEvent]:
    """Return the events of a place by number, without those held from the caller; none if it may not open it."""
    window = await open_place(place, stores)
    events = [] if window is None else await stores.windows.own_events(window)
    return [event for event in events if event.trust is None or not is_held_from(event, stores.actor)]


def is_held_from(event: WindowEvent, reader: Actor) -> bool:
    """Tell whether an event waits for its release and somebody else recorded it: searches do not hand it on."""
    is_held = event.trust is not None and event.trust.held
    return is_held and principal_of(event.author) != reader.principal_id


def events_by_number(events: Sequence[WindowEvent]) -> dict[int, WindowEvent]:
    """Return events by their number, of equal ones the first."""
    return {event.number: event for event in reversed(events)}


def event_numbered(events: Sequence[WindowEvent], number: int) -> WindowEvent | None:
    """Return the event with a number; ``events`` are sorted by it."""
    index = bisect_left(events, number, key=lambda event: event.number)
    return events[index] if index < len(events) and events[index].number == number else None


def is_searchable(event: WindowEvent) -> bool:
    # The layers of every prompt have a registered system prompt.
    return event.category not in NOT_SEARCHABLE and not event.redacted and not event.registered
