"""What messages, values on boards and memories are called in a collection, and what they say as text.

Offsets of their chunks count the characters of these texts. A version holds the life of a key as well, so that a key
that was deleted and written again is not taken for what it was before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from weft.capabilities.board.model import Entry, EntryWithValue
    from weft.capabilities.memory.model import MemoryEntry, MemoryEntryWithValue
    from weft.capabilities.messages.model import Message
    from weft.capabilities.records.record_ids import VersionId

# What is said stays as it was said.
VERSION_OF_MESSAGES = 1
_BITS_OF_A_VERSION = 32
# A key may be called 3, and so is a message of the same session.
_KEY = "key/"


class MemoryKey(NamedTuple):
    """A key of an agent's memory: global, or that of a session. On the collection it is one text."""

    session_id: str | None
    key: str

    def __str__(self) -> str:
        return f"{self.session_id or ''}/{self.key}"

    @classmethod
    def parse(cls, item: str) -> MemoryKey:
        session_id, _, key = item.partition("/")
        return cls(session_id or None, key)


def item_of_key(key: str) -> str:
    """Return what a key of a board is called in the collection, where messages go by their numbers."""
    return f"{_KEY}{key}"


def key_of_item(item: str) -> str:
    return item.removeprefix(_KEY)


def version_of(entry: Entry | MemoryEntry | VersionId) -> int:
    """Return a number that grows with every write of a key, also across its lives."""
    return entry.incarnation << _BITS_OF_A_VERSION | entry.version


def text_of_message(message: Message) -> str:
    return message.content


def text_of_entry(entry: EntryWithValue) -> str:
    return entry.value


def text_of_memory(remembered: MemoryEntryWithValue) -> str:
    """Return what is remembered: words as they are, anything else as JSON."""
    value = msgspec.json.decode(remembered.text)
    return value if isinstance(value, str) else remembered.text
