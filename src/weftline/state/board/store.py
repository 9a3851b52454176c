"""Ports of the board: entries, observers and read counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.sessions.model import Session
    from weftline.state.board.model import Entry, EntryWithValue


class EntryStore(Protocol):
    """Current entries of boards. May include expired ones; callers check the time."""

    async def get(self, session_id: str, key: str) -> Entry | None: ...

    async def read(self, session_id: str, keys: Sequence[str]) -> Sequence[EntryWithValue]:
        """Return the keys that exist, with their values."""
        ...

    async def list(self, session_id: str) -> Sequence[Entry]:
        """Return all entries, by key."""
        ...

    async def keys_after(self, session_id: str, key: str, limit: int) -> Sequence[str]:
        """Return the next keys after one, in order."""
        ...

    async def read_all(self, session_id: str) -> Sequence[EntryWithValue]:
        """Return all entries with their values, by key."""
        ...

    async def put(self, session_id: str, entry: Entry) -> None: ...

    async def put_all(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Put many entries at once."""
        ...

    async def remove(self, session_id: str, key: str) -> None: ...

    async def remove_all(self, session_id: str, keys: Sequence[str]) -> None:
        """Remove many entries at once."""
        ...

    async def count(self, session_id: str) -> int:
        """Return the number of entries."""
        ...

    async def next_expiry(self, session_id: str) -> int | None:
        """Return when the next entry expires, if any does."""
        ...

    async def add_reads(self, session_id: str, key: str, reads: int, last_read_at: int) -> None: ...


class EntryObserver(Protocol):
    """Notified of every entry written to a board, in the same transaction. Branches are not observed."""

    async def entry_written(self, session: Session, entry: Entry) -> None: ...


class ReadTally(Protocol):
    """Counts reads of keys, to find unread ones. Must not slow down a read."""

    def note(self, tenant: str, session_id: str, key: str, at: int) -> None: ...
