"""Memory entries, scopes, cursors, limits and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from weftline.kernel.errors import Conflict, ContentTooLarge, NotFound
from weftline.records.record_ids import memory_line
from weftline.safety.trust.model import TrustLabel

ScopeName = Literal["global", "session"]
MAX_VALUE_BYTES = 1_048_576
_LINE = "memory:"
# Keys are ASCII without this character, so it sorts after every key with the same prefix.
_AFTER_ALL_KEYS = "\x7f"


class MemoryNotFound(NotFound):
    """Your memory has no such key in this scope."""

    code = "MEMORY_NOT_FOUND"
    hint = "List your keys with `memory.list`; omit session_id for global memory. The entry may have expired."
    related = ("list_memory",)


class KeyExists(Conflict):
    """The key exists already, and overwrite is false."""

    code = "KEY_EXISTS"
    hint = "Read it with `memory.get`, choose another key, or omit overwrite to replace it."
    related = ("get_memory", "set_memory")


class MemoryLimitExceeded(Conflict):
    """The write would exceed the size limit of your memory."""

    code = "MEMORY_LIMIT_EXCEEDED"
    hint = "Delete entries with `memory.delete`, or write entries with expires_in so that they expire."
    related = ("list_memory", "delete_memory")


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Size limit of one agent's memory, and how often expired entries are removed while there are subscribers."""

    limit_mb: int
    cleanup_interval_seconds: int

    @property
    def total_bytes(self) -> int:
        return self.limit_mb * 1_048_576


class MemoryScope(msgspec.Struct, frozen=True):
    """One scope of an agent's memory: that of a session, or the global one."""

    owner: str
    session_id: str | None

    @property
    def name(self) -> ScopeName:
        return scope_name(self.session_id)

    @property
    def line_id(self) -> str:
        """Return the line with the history of this scope."""
        return memory_line(self.owner, self.session_id)


def scope_of(line_id: str) -> MemoryScope | None:
    """Return the scope of a memory line; None for any other line."""
    if not line_id.startswith(_LINE):
        return None
    owner, _, session_id = line_id.removeprefix(_LINE).partition(":")
    return MemoryScope(owner, session_id or None)


def scope_name(session_id: str | None) -> ScopeName:
    return "global" if session_id is None else "session"


class MemoryEntry(msgspec.Struct, frozen=True):
    """A memory entry without its value. ``size`` is the bytes of its JSON, ``metadata`` JSON text."""

    session_id: str | None
    key: str
    incarnation: int
    version: int
    blob_hash: bytes
    size: int
    metadata: str | None
    created_at: int
    updated_at: int
    expires_at: int | None
    trust: TrustLabel | None = None

    @property
    def weight(self) -> int:
        """Return the bytes that count against the limit; the key counts too, so that empty values are not free."""
        return len(self.key) + self.size + len((self.metadata or "").encode())

    def is_live(self, now: int) -> bool:
        return self.expires_at is None or now < self.expires_at


class MemoryEntryWithValue(NamedTuple):
    """A memory entry with its value as JSON text."""

    entry: MemoryEntry
    text: str


class MemoryUsage(NamedTuple):
    """Total weight of an agent's memory, and the number of its entries that expired."""

    weight: int
    expired: int


class ScopeSize(NamedTuple):
    """The number of live entries in a scope."""

    session_id: str | None
    entries: int


class MemoryCursor(NamedTuple):
    """The last entry of a page. Global entries come first, then session by session."""

    session_id: str | None
    key: str

    @classmethod
    def of(cls, entry: MemoryEntry) -> MemoryCursor:
        return cls(entry.session_id, entry.key)

    @classmethod
    def after_scope(cls, session_id: str | None) -> MemoryCursor:
        return cls(session_id, _AFTER_ALL_KEYS)


START = MemoryCursor(None, "")


class KeyRange(NamedTuple):
    """Keys from ``first`` up to but without ``end``."""

    first: str
    end: str

    @classmethod
    def of(cls, prefix: str, after: str = "") -> KeyRange:
        """Return the range of keys with a prefix and after another key."""
        return cls(max(prefix, f"{after}\x00" if after else ""), prefix + _AFTER_ALL_KEYS)


def check_value_size(size: int) -> None:
    if size > MAX_VALUE_BYTES:
        raise ContentTooLarge(
            f"The value has {size} bytes of JSON; the maximum is {MAX_VALUE_BYTES}.",
            value_size=size,
            limit_bytes=MAX_VALUE_BYTES,
        )
