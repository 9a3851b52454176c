"""Ids, versions and texts of messages, board entries and memories in a collection.

Chunk offsets count the characters of these texts. Versions include the incarnation, so that a key that was deleted and
written again has a new version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from weft.capabilities.board.model import Entry, EntryWithValue
    from weft.capabilities.memory.model import MemoryEntry, MemoryEntryWithValue
    from weft.capabilities.messages.model import Message
    from weft.capabilities.records.record_ids import VersionId

# Messages are immutable.
MESSAGE_VERSION = 1
_VERSION_BITS = 32
# Prevents a board key named 3 from having the id of message 3 of the same session.
_KEY_PREFIX = "key/"


class MemoryKey(NamedTuple):
    """A key of an agent's memory, global or of a session, as an item id."""

    session_id: str | None
    key: str

    def __str__(self) -> str:
        return f"{self.session_id or ''}/{self.key}"

    @classmethod
    def parse(cls, item: str) -> MemoryKey:
        session_id, _, key = item.partition("/")
        return cls(session_id or None, key)


def item_of_key(key: str) -> str:
    """Return the item id of a board key."""
    return f"{_KEY_PREFIX}{key}"


def key_of_item(item: str) -> str:
    return item.removeprefix(_KEY_PREFIX)


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
