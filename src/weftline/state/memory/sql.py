"""Private memory in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.blobs import Blobs
from weftline.indexing.collections import MEMORY, MemoryKey
from weftline.indexing.sql import CollectionStore
from weftline.kernel.packed_text import text_of
from weftline.kernel.transaction import SqlStore
from weftline.safety.trust.model import decode_label, encode_label
from weftline.state.memory.model import MemoryEntry, MemoryEntryWithValue, MemoryScope, MemoryUsage, ScopeSize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.transaction import Row, Transaction
    from weftline.state.memory.model import KeyRange, MemoryCursor

_COLUMNS = """
e.session_id, e.key, e.incarnation, e.version, e.blob_hash, e.size, e.metadata, e.created_at, e.updated_at,
e.expires_at, e.trust
"""
_ENTRY = f"SELECT {_COLUMNS} FROM memory_entries e "  # noqa: S608 - our own column names
_WITH_VALUE = f"""
SELECT {_COLUMNS}, b.content FROM memory_entries e JOIN blobs b ON b.tenant = e.tenant AND b.hash = e.blob_hash
"""  # noqa: S608 - our own column names
_USAGE = "SELECT weight, expired FROM memory_owners WHERE tenant = $1 AND principal_id = $2 "
_NO_USAGE = MemoryUsage(0, 0)
_LOCK = """
INSERT INTO memory_owners (tenant, principal_id, weight, expired) VALUES ($1, $2, 0, 0)
ON CONFLICT DO NOTHING
"""
_ADJUST = """
UPDATE memory_owners SET weight = weight + $1, expired = expired + $2
WHERE tenant = $3 AND principal_id = $4
"""
_GET = _ENTRY + "WHERE e.tenant = $1 AND e.principal_id = $2 AND e.session_id = $3 AND e.key = $4"
_READ = _WITH_VALUE + "WHERE e.tenant = $1 AND e.principal_id = $2 AND e.session_id = $3 AND e.key = $4"
_PUT = """
INSERT INTO memory_entries (tenant, principal_id, session_id, key, incarnation, version, blob_hash,
size, weight,
                            metadata, created_at, updated_at, expires_at, trust)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (tenant, principal_id, session_id, key) DO UPDATE SET
    incarnation = excluded.incarnation, version = excluded.version, blob_hash = excluded.blob_hash,
    size = excluded.size,
    weight = excluded.weight, metadata = excluded.metadata, created_at = excluded.created_at,
    updated_at = excluded.updated_at, expires_at = excluded.expires_at, trust = excluded.trust
"""
_REMOVE = "DELETE FROM memory_entries WHERE tenant = $1 AND principal_id = $2 AND session_id = $3 AND key = $4"
_PAGE = f"""
{_ENTRY}
WHERE e.tenant = $1 AND e.principal_id = $2 AND e.session_id = $3 AND e.key >= $4 AND e.key < $5
  AND (e.expires_at IS NULL OR e.expires_at > $6)
ORDER BY e.key LIMIT $7
"""
_PAGE_OF_ALL = f"""
{_ENTRY}
WHERE e.tenant = $1 AND e.principal_id = $2 AND (e.session_id, e.key) > ($3, $4)
  AND e.key >= $5 AND e.key < $6 AND (e.expires_at IS NULL OR e.expires_at > $7)
ORDER BY e.session_id, e.key LIMIT $8
"""
_SIZES = """
SELECT session_id, COUNT(*) FROM memory_entries
WHERE tenant = $1 AND principal_id = $2 AND (expires_at IS NULL OR expires_at > $3)
GROUP BY session_id ORDER BY session_id
"""
_EXPIRED = f"""
{_ENTRY}
WHERE e.tenant = $1 AND e.principal_id = $2 AND e.session_id = $3 AND e.expires_at <= $4
ORDER BY e.expires_at LIMIT $5
"""
_NEXT_EXPIRY = """
SELECT MIN(expires_at) FROM memory_entries
WHERE tenant = $1 AND principal_id = $2 AND session_id = $3 AND expires_at IS NOT NULL
"""
_EXPIRED_USAGE = """
SELECT CAST(COALESCE(SUM(weight), 0) AS {bigint}), COUNT(*) FROM memory_entries
WHERE tenant = $1 AND principal_id = $2 AND expires_at <= $3
"""


class MemoryStore(SqlStore):
    """Current memory entries. Expired ones are included until they are removed."""

    async def lock(self, owner: str) -> MemoryUsage:
        """Lock an agent's memory until the transaction ends, and return its usage."""
        row = await self._tx.one(_USAGE + "{for_update}", self._tenant, owner)
        if row is None:
            await self._tx.run(_LOCK, self._tenant, owner)
            row = await self._tx.one(_USAGE + "{for_update}", self._tenant, owner)
        return _NO_USAGE if row is None else MemoryUsage(*row)

    async def usage(self, owner: str) -> MemoryUsage:
        row = await self._tx.one(_USAGE, self._tenant, owner)
        return _NO_USAGE if row is None else MemoryUsage(*row)

    async def adjust(self, owner: str, weight_change: int, expired: int) -> None:
        """Add to the usage of an agent's memory, which must be locked."""
        await self._tx.run(_ADJUST, weight_change, expired, self._tenant, owner)

    async def add_scope(self, scope: MemoryScope) -> None:
        """Register a session scope, so that it is deleted with its session."""
        if scope.session_id is not None:
            await self._tx.run(
                "INSERT INTO session_memories (tenant, session_id, principal_id) VALUES ($1, $2, $3)",
                self._tenant,
                scope.session_id,
                scope.owner,
            )

    async def get(self, scope: MemoryScope, key: str) -> MemoryEntry | None:
        row = await self._tx.one(_GET, self._tenant, scope.owner, scope.session_id or "", key.encode())
        return None if row is None else _entry(row)

    async def read(self, scope: MemoryScope, key: str) -> MemoryEntryWithValue | None:
        row = await self._tx.one(_READ, self._tenant, scope.owner, scope.session_id or "", key.encode())
        return None if row is None else MemoryEntryWithValue(_entry(row), text_of(row[11]))

    async def values(self, blob_hashes: Iterable[bytes]) -> Mapping[bytes, str]:
        """Return the JSON texts of values by hash."""
        return await Blobs(self._tx).read(blob_hashes)

    async def put(self, scope: MemoryScope, entry: MemoryEntry) -> None:
        await self._tx.run(
            _PUT,
            self._tenant,
            scope.owner,
            scope.session_id or "",
            entry.key.encode(),
            entry.incarnation,
            entry.version,
            entry.blob_hash,
            entry.size,
            entry.weight,
            entry.metadata,
            entry.created_at,
            entry.updated_at,
            entry.expires_at,
            encode_label(entry.trust),
        )

    async def remove(self, scope: MemoryScope, key: str) -> None:
        await self._tx.run(_REMOVE, self._tenant, scope.owner, scope.session_id or "", key.encode())

    async def page(self, scope: MemoryScope, keys: KeyRange, now: int, limit: int) -> Sequence[MemoryEntry]:
        """Return live entries of a scope, ordered by key."""
        rows = await self._tx.all(
            _PAGE, self._tenant, scope.owner, scope.session_id or "", keys.first.encode(), keys.end.encode(), now, limit
        )
        return [_entry(row) for row in rows]

    async def page_of_all(
        self, owner: str, after: MemoryCursor, keys: KeyRange, now: int, limit: int
    ) -> Sequence[MemoryEntry]:
        """Return live entries of all scopes after a cursor: global ones first, then session by session."""
        rows = await self._tx.all(
            _PAGE_OF_ALL,
            self._tenant,
            owner,
            after.session_id or "",
            after.key.encode(),
            keys.first.encode(),
            keys.end.encode(),
            now,
            limit,
        )
        return [_entry(row) for row in rows]

    async def sizes(self, owner: str, now: int) -> Sequence[ScopeSize]:
        """Return the number of live entries of each scope that has any."""
        rows = await self._tx.all(_SIZES, self._tenant, owner, now)
        return [ScopeSize(session_id or None, entries) for session_id, entries in rows]

    async def expired(self, scope: MemoryScope, now: int, limit: int) -> Sequence[MemoryEntry]:
        """Return expired entries, earliest expiry first."""
        rows = await self._tx.all(_EXPIRED, self._tenant, scope.owner, scope.session_id or "", now, limit)
        return [_entry(row) for row in rows]

    async def next_expiry(self, scope: MemoryScope) -> int | None:
        """Return the earliest expiry, if any entry has one."""
        row = await self._tx.one(_NEXT_EXPIRY, self._tenant, scope.owner, scope.session_id or "")
        return None if row is None else row[0]

    async def expired_usage(self, owner: str, now: int) -> MemoryUsage:
        """Return the weight and number of entries that have expired and are not removed yet."""
        row = await self._tx.one(_EXPIRED_USAGE, self._tenant, owner, now)
        return _NO_USAGE if row is None else MemoryUsage(*row)


async def _memories_of(transaction: Transaction, session_id: str) -> list[MemoryScope]:
    """Return the memory scopes of a session, in lock order."""
    rows = await transaction.all(
        "SELECT principal_id FROM session_memories WHERE tenant = $1 AND session_id = $2 ORDER BY principal_id",
        transaction.tenant,
        session_id,
    )
    return [MemoryScope(row[0], session_id) for row in rows]


_WEIGHT_OF_SESSION = """
SELECT CAST(COALESCE(SUM(weight), 0) AS {bigint}) FROM memory_entries
WHERE tenant = $1 AND principal_id = $2 AND session_id = $3
"""


async def memory_lines_of(transaction: Transaction, session_id: str) -> list[str]:
    """Return the lines of the memories of a session."""
    return [scope.line_id for scope in await _memories_of(transaction, session_id)]


async def _remove_from_index(transaction: Transaction, session_id: str, owners: Sequence[str]) -> None:
    collections = CollectionStore(transaction)
    await collections.lock(MEMORY)
    for owner in owners:
        rows = await transaction.all(
            """
            SELECT number FROM chunks
            WHERE tenant = $1 AND collection = $2 AND place = $3 AND SUBSTR(item, 1, $4) = $5 ORDER BY number
            """,
            transaction.tenant,
            MEMORY,
            owner,
            len(prefix := str(MemoryKey(session_id, ""))),
            prefix,
        )
        await collections.remove(MEMORY, [row[0] for row in rows])


async def erase_memories(transaction: Transaction, session_id: str) -> None:
    """Delete all memory of a session, from the index too, and subtract it from the usage of its owners."""
    scopes = await _memories_of(transaction, session_id)
    if scopes:
        await _remove_from_index(transaction, session_id, [scope.owner for scope in scopes])
    for scope in scopes:
        removed = await transaction.one(_WEIGHT_OF_SESSION, transaction.tenant, scope.owner, session_id)
        await MemoryStore(transaction).adjust(scope.owner, -(removed[0] if removed else 0), 0)
        await transaction.run(
            "DELETE FROM memory_entries WHERE tenant = $1 AND principal_id = $2 AND session_id = $3",
            transaction.tenant,
            scope.owner,
            session_id,
        )
    await transaction.run(
        "DELETE FROM session_memories WHERE tenant = $1 AND session_id = $2", transaction.tenant, session_id
    )


def _entry(row: Row) -> MemoryEntry:
    session_id, key, *rest, trust = row[:11]
    return MemoryEntry(session_id or None, key.decode(), *rest, decode_label(trust))  # type: ignore[call-arg]
