"""Ids, versions and texts of messages, board entries, private memory and window events in a collection.

Chunk offsets count the characters of these texts. Versions include the incarnation, so that a key that was deleted and
written again has a new version.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from weftline.access.model import AgentNotFound
from weftline.history.item_ids import VersionId
from weftline.history.model import BranchNotFound, trunk_of
from weftline.indexing.collections import WindowPlace
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.identity import principal_of
from weftline.sessions.model import NotMember, SessionNotFound
from weftline.windows.model import PREFIX as WINDOW_PREFIX
from weftline.windows.model import Category, WindowNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.identity import Actor
    from weftline.search.persistent_memory import SearchStores
    from weftline.sessions.messages.model import Message
    from weftline.state.board.model import Entry, EntryWithValue
    from weftline.state.memory.model import MemoryEntry, MemoryEntryWithValue
    from weftline.windows.model import Window, WindowEvent


# Messages are immutable.
MESSAGE_VERSION = 1
_VERSION_BITS = 32


def is_window(line_id: str) -> bool:
    """Return whether a line is that of a window."""
    return line_id.startswith(f"{WINDOW_PREFIX}:")


def window_place(line_id: str) -> str:
    """Return the place of a window's line, whatever its branch."""
    return trunk_of(line_id).removeprefix(f"{WINDOW_PREFIX}:")


def version_of(entry: Entry | MemoryEntry | VersionId) -> int:
    """Return a number that grows with every write of a key, across incarnations."""
    return entry.incarnation << _VERSION_BITS | entry.version


def text_of_message(message: Message) -> str:
    return message.content


def text_of_entry(entry: EntryWithValue) -> str:
    return entry.value


def text_of_memory(memory: MemoryEntryWithValue) -> str:
    """Return a memory as text: strings as they are, other values as JSON."""
    value = msgspec.json.decode(memory.text)
    return value if isinstance(value, str) else memory.text


def text_of_event(event: WindowEvent) -> str:
    """Return the content of a window event, with the tool calls that it makes."""
    calls = (f"{call.name} {call.arguments}" for call in event.message.tool_calls)
    return "\n".join(filter(None, (event.message.content, *calls)))


def speaker_of_event(event: WindowEvent) -> str:
    return event.message.name or event.message.role


def version_of_event(event: WindowEvent) -> int:
    """Return the version of an event's key; that of an event copied from another window can change."""
    version = VersionId.parse(event.item_id)
    return MESSAGE_VERSION if version is None else version_of(version)


# Window events as a search reads them: on the line that the agent is on, without redacted and held ones.

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
