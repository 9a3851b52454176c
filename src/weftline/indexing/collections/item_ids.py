"""Ids of board keys and memory keys as items of a collection; the id of a message or an event is its number."""

from __future__ import annotations

from typing import NamedTuple

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
