"""Entries of an agent's memory and the rules they obey."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from weft.capabilities.records.record_ids import memory_line
from weft.kernel.errors import Conflict, ContentTooLarge, NotFound

ScopeName = Literal["global", "session"]
MAX_VALUE_BYTES = 1_048_576
_LINE = "memory:"
# Keys are ASCII, so this is behind every one of them that begins alike.
_BEHIND_ALL_KEYS = "\x7f"


class MemoryNotFound(NotFound):
    """Your memory has no such key in this scope."""

    code = "MEMORY_NOT_FOUND"
    hint = "See your keys with `memory.list`; leave session_id out for global memory. An expired entry is gone."
    related = ("list_memory",)


class KeyExists(Conflict):
    """The key is taken, and the call said not to overwrite it."""

    code = "KEY_EXISTS"
    hint = "Read it with `memory.get`, choose another key, or leave overwrite out to replace it."
    related = ("get_memory", "set_memory")


class MemoryLimitExceeded(Conflict):
    """Your memory cannot hold this much more."""

    code = "MEMORY_LIMIT_EXCEEDED"
    hint = "Delete what you no longer need with `memory.delete`, or give entries an expires_in and let them go."
    related = ("list_memory", "delete_memory")


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """What one agent's memory may hold, and how often expired entries are looked for while anyone follows events."""

    limit_mb: int
    cleanup_interval_seconds: int

    @property
    def total_bytes(self) -> int:
        return self.limit_mb * 1_048_576


class MemoryScope(msgspec.Struct, frozen=True):
    """Whose memory, and which part of it: what belongs to one session, or what belongs to none."""

    owner: str
    session_id: str | None

    @property
    def name(self) -> ScopeName:
        return scope_name(self.session_id)

    @property
    def line_id(self) -> str:
        """Return the line that keeps this part's history."""
        return memory_line(self.owner, self.session_id)


def scope_of(line_id: str) -> MemoryScope | None:
    """Return the part of a memory whose history a line keeps; None if it is the line of something else."""
    if not line_id.startswith(_LINE):
        return None
    owner, _, session_id = line_id.removeprefix(_LINE).partition(":")
    return MemoryScope(owner, session_id or None)


def scope_name(session_id: str | None) -> ScopeName:
    return "global" if session_id is None else "session"


class MemoryEntry(msgspec.Struct, frozen=True):
    """One key of an agent's memory, without its value. ``size`` is the bytes of its JSON, ``metadata`` JSON text."""

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

    @property
    def weight(self) -> int:
        """Return what the entry counts for. Its key does too: a memory of nothing but keys must fill up as well."""
        return len(self.key) + self.size + len((self.metadata or "").encode())

    def lives_at(self, now: int) -> bool:
        return self.expires_at is None or now < self.expires_at


class Remembered(NamedTuple):
    """One key of an agent's memory with its value as JSON text."""

    entry: MemoryEntry
    text: str


class MemoryUsage(NamedTuple):
    """What an agent's memory adds up to, and how many of its entries were removed because they had expired."""

    weight: int
    expired: int


class ScopeSize(NamedTuple):
    """How many live entries one part of a memory has."""

    session_id: str | None
    entries: int


class MemoryCursor(NamedTuple):
    """Where a page of entries ended. Global entries come first, then those of each session."""

    session_id: str | None
    key: str

    @classmethod
    def of(cls, entry: MemoryEntry) -> MemoryCursor:
        return cls(entry.session_id, entry.key)

    @classmethod
    def behind(cls, session_id: str | None) -> MemoryCursor:
        return cls(session_id, _BEHIND_ALL_KEYS)


START = MemoryCursor(None, "")


class KeyRange(NamedTuple):
    """Keys from ``first`` up to but without ``end``."""

    first: str
    end: str

    @classmethod
    def of(cls, prefix: str, after: str = "") -> KeyRange:
        """Return the range of keys that begin with a prefix and come behind another key."""
        return cls(max(prefix, f"{after}\x00" if after else ""), prefix + _BEHIND_ALL_KEYS)


def check_value_size(size: int) -> None:
    if size > MAX_VALUE_BYTES:
        raise ContentTooLarge(
            f"The value has {size} bytes of JSON; one entry may have {MAX_VALUE_BYTES}.",
            value_size=size,
            limit_bytes=MAX_VALUE_BYTES,
        )
