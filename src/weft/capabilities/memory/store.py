"""What memory needs of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.capabilities.memory.model import (
        KeyRange,
        MemoryCursor,
        MemoryEntry,
        MemoryScope,
        MemoryUsage,
        Remembered,
        ScopeSize,
    )


class MemoryStore(Protocol):
    """The present entries of agents' memories. Expired ones are among them until they are removed."""

    async def lock(self, owner: str) -> MemoryUsage:
        """Return what an agent's memory adds up to, keeping its other writers waiting until the transaction ends."""
        ...

    async def held(self, owner: str) -> MemoryUsage:
        """Return what an agent's memory adds up to."""
        ...

    async def adjust(self, owner: str, weight_change: int, expired: int) -> None:
        """Add to what an agent's memory adds up to, which ``lock`` must have returned before."""
        ...

    async def add_scope(self, scope: MemoryScope) -> None:
        """Note that this part of a memory has a line, so that it goes when its session does."""
        ...

    async def get(self, scope: MemoryScope, key: str) -> MemoryEntry | None: ...

    async def read(self, scope: MemoryScope, key: str) -> Remembered | None: ...

    async def values(self, blob_hashes: Iterable[bytes]) -> Mapping[bytes, str]:
        """Return the JSON texts of values that present entries name."""
        ...

    async def put(self, scope: MemoryScope, entry: MemoryEntry) -> None: ...

    async def remove(self, scope: MemoryScope, key: str) -> None: ...

    async def page(self, scope: MemoryScope, keys: KeyRange, now: int, limit: int) -> Sequence[MemoryEntry]:
        """Return live entries of one part of a memory, by key in the order of its characters."""
        ...

    async def page_of_all(
        self, owner: str, after: MemoryCursor, keys: KeyRange, now: int, limit: int
    ) -> Sequence[MemoryEntry]:
        """Return live entries of a whole memory behind a position: the global ones first, then session by session."""
        ...

    async def sizes(self, owner: str, now: int) -> Sequence[ScopeSize]:
        """Return how many live entries each part of a memory has, leaving out those that have none."""
        ...

    async def expired(self, scope: MemoryScope, now: int, limit: int) -> Sequence[MemoryEntry]:
        """Return entries whose time has run out, longest overdue first."""
        ...

    async def next_expiry(self, scope: MemoryScope) -> int | None:
        """Return when the next entry expires, if any does."""
        ...

    async def overdue(self, owner: str, now: int) -> MemoryUsage:
        """Return what entries add up to, and how many they are, that have expired and were not removed yet."""
        ...
