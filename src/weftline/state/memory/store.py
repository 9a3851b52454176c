"""Storage port of private memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.state.memory.model import (
        KeyRange,
        MemoryCursor,
        MemoryEntry,
        MemoryEntryWithValue,
        MemoryScope,
        MemoryUsage,
        ScopeSize,
    )


class MemoryStore(Protocol):
    """Current memory entries. Expired ones are included until they are removed."""

    async def lock(self, owner: str) -> MemoryUsage:
        """Lock an agent's memory until the transaction ends, and return its usage."""
        ...

    async def usage(self, owner: str) -> MemoryUsage: ...

    async def adjust(self, owner: str, weight_change: int, expired: int) -> None:
        """Add to the usage of an agent's memory, which must be locked."""
        ...

    async def add_scope(self, scope: MemoryScope) -> None:
        """Register a session scope, so that it is deleted with its session."""
        ...

    async def get(self, scope: MemoryScope, key: str) -> MemoryEntry | None: ...

    async def read(self, scope: MemoryScope, key: str) -> MemoryEntryWithValue | None: ...

    async def values(self, blob_hashes: Iterable[bytes]) -> Mapping[bytes, str]:
        """Return the JSON texts of values by hash."""
        ...

    async def put(self, scope: MemoryScope, entry: MemoryEntry) -> None: ...

    async def remove(self, scope: MemoryScope, key: str) -> None: ...

    async def page(self, scope: MemoryScope, keys: KeyRange, now: int, limit: int) -> Sequence[MemoryEntry]:
        """Return live entries of a scope, ordered by key."""
        ...

    async def page_of_all(
        self, owner: str, after: MemoryCursor, keys: KeyRange, now: int, limit: int
    ) -> Sequence[MemoryEntry]:
        """Return live entries of all scopes after a cursor: global ones first, then session by session."""
        ...

    async def sizes(self, owner: str, now: int) -> Sequence[ScopeSize]:
        """Return the number of live entries of each scope that has any."""
        ...

    async def expired(self, scope: MemoryScope, now: int, limit: int) -> Sequence[MemoryEntry]:
        """Return expired entries, earliest expiry first."""
        ...

    async def next_expiry(self, scope: MemoryScope) -> int | None:
        """Return the earliest expiry, if any entry has one."""
        ...

    async def expired_usage(self, owner: str, now: int) -> MemoryUsage:
        """Return the weight and number of entries that have expired and are not removed yet."""
        ...
