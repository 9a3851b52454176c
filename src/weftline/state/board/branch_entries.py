"""Entries of a branch, read from its history; only the main board has a materialised table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.model import LATEST
from weftline.kernel.identity import ANYONE
from weftline.state.board.model import Entry, EntryWithValue
from weftline.state.board.read_acl import later_acls_of_base

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.model import Version
    from weftline.history.store import LineStore
    from weftline.state.board.model import Patterns


class BranchEntries:
    """EntryStore of one branch. Writes are no-ops: the commit itself is the write."""

    def __init__(self, lines: LineStore, line_id: str) -> None:
        self._lines = lines
        self._line_id = line_id

    async def get(self, session_id: str, key: str) -> Entry | None:
        found = await self.read(session_id, [key])
        return found[0].entry if found else None

    async def read(self, session_id: str, keys: Sequence[str]) -> Sequence[EntryWithValue]:
        del session_id
        found = [await self._lines.latest(self._line_id, key, LATEST) for key in keys]
        return await self._entries([version for version in found if version is not None])

    async def list(self, session_id: str) -> Sequence[Entry]:
        del session_id
        return [found.entry for found in await self._current(values=False)]

    async def keys_after(self, session_id: str, key: str, limit: int) -> Sequence[str]:
        return [entry.key for entry in await self.list(session_id) if entry.key > key][:limit]

    async def read_all(self, session_id: str) -> Sequence[EntryWithValue]:
        del session_id
        return await self._current(values=True)

    async def put(self, session_id: str, entry: Entry) -> None:
        pass

    async def put_all(self, session_id: str, entries: Sequence[Entry]) -> None:
        pass

    async def remove(self, session_id: str, key: str) -> None:
        pass

    async def remove_all(self, session_id: str, keys: Sequence[str]) -> None:
        pass

    async def count(self, session_id: str) -> int:
        return len(await self.list(session_id))

    async def next_expiry(self, session_id: str) -> int | None:
        expiries = [entry.expires_at for entry in await self.list(session_id) if entry.expires_at is not None]
        return min(expiries, default=None)

    async def add_reads(self, session_id: str, key: str, reads: int, last_read_at: int) -> None:
        pass

    async def _current(self, *, values: bool) -> Sequence[EntryWithValue]:
        versions = await self._lines.state_at(self._line_id, LATEST, values=values)
        return await self._entries(sorted(versions, key=lambda version: version.change.key))

    async def _entries(self, versions: Sequence[Version]) -> Sequence[EntryWithValue]:
        later = await later_acls_of_base(self._lines, self._line_id, versions)
        return [
            EntryWithValue(_entry(version, later_acls), version.value or "", lost=version.value is None)
            for version, later_acls in zip(versions, later, strict=True)
        ]


def _entry(version: Version, later_acls: tuple[Patterns, ...]) -> Entry:
    change = version.change
    return Entry(
        key=change.key,
        incarnation=change.incarnation,
        version=change.version,
        blob_hash=change.blob_hash or b"",
        tokens=change.meta.tokens,
        written_by=version.author,
        written_at=version.committed_at,
        expires_at=change.meta.expires_at,
        readable_by=change.meta.readable_by or ANYONE,
        writable_by=change.meta.writable_by or ANYONE,
        later_acls=later_acls,
        trust=change.meta.trust,
        media_type=change.meta.media_type,
    )
