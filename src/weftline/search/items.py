"""Ids, versions and texts of messages, board entries, private memory and window events in a collection.

Chunk offsets count the characters of these texts. Versions include the incarnation, so that a key that was deleted and
written again has a new version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.history.model import trunk_of
from weftline.records.record_ids import VersionId
from weftline.windows.model import PREFIX as WINDOW_PREFIX

if TYPE_CHECKING:
    from weftline.sessions.messages.model import Message
    from weftline.state.board.model import Entry, EntryWithValue
    from weftline.state.memory.model import MemoryEntry, MemoryEntryWithValue
    from weftline.windows.model import WindowEvent

# Messages are immutable.
MESSAGE_VERSION = 1
_VERSION_BITS = 32
_PLACE_SEPARATOR = ":"


class WindowPlace(NamedTuple):
    """The window of an agent in a session, as a place of a collection."""

    session_id: str
    agent_id: str

    def __str__(self) -> str:
        return f"{self.session_id}{_PLACE_SEPARATOR}{self.agent_id}"

    @classmethod
    def parse(cls, place: str) -> WindowPlace:
        session_id, _, agent_id = place.partition(_PLACE_SEPARATOR)
        return cls(session_id, agent_id)


def is_window(line_id: str) -> bool:
    """Return whether a line is that of a window."""
    return line_id.startswith(f"{WINDOW_PREFIX}{_PLACE_SEPARATOR}")


def window_place(line_id: str) -> str:
    """Return the place of a window's line, whatever its branch."""
    return trunk_of(line_id).removeprefix(f"{WINDOW_PREFIX}{_PLACE_SEPARATOR}")


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
