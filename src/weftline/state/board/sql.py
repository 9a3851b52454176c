"""The current entries of boards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.kernel.identity import ANYONE, named_types
from weftline.kernel.packed_text import text_of
from weftline.kernel.patterns import decode_patterns, encode_patterns
from weftline.kernel.transaction import SqlStore
from weftline.safety.trust.model import decode_label, encode_label
from weftline.state.board.model import Entry, EntryWithValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Row, Value

_COLUMNS = """
e.key, e.incarnation, e.version, e.blob_hash, e.tokens, e.written_by, e.written_at, e.expires_at,
e.readable_by, e.writable_by,
e.reads, e.last_read_at, e.trust, e.media_type
"""
_ENTRY = f"SELECT {_COLUMNS} FROM entries e "  # noqa: S608 - our own column names
_WITH_VALUE = f"""
SELECT {_COLUMNS}, b.content FROM entries e JOIN blobs b ON b.tenant = e.tenant AND b.hash = e.blob_hash
"""  # noqa: S608 - our own column names
_PUT = """
INSERT INTO entries (tenant, session_id, key, incarnation, version, blob_hash, tokens, written_by, written_at,
                     expires_at, readable_by, writable_by, trust, media_type)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (tenant, session_id, key) DO UPDATE SET
    incarnation = excluded.incarnation, version = excluded.version, blob_hash = excluded.blob_hash,
    tokens = excluded.tokens, written_by = excluded.written_by, written_at = excluded.written_at,
    expires_at = excluded.expires_at, readable_by = excluded.readable_by, writable_by = excluded.writable_by,
    trust = excluded.trust, media_type = excluded.media_type
"""
_REMOVE = "DELETE FROM entries WHERE tenant = $1 AND session_id = $2 AND key = $3"
_KEYS_AFTER = "SELECT key FROM entries WHERE tenant = $1 AND session_id = $2 AND key > $3 ORDER BY key LIMIT $4"
_ADD_READS = """
UPDATE entries SET reads = reads + $1, last_read_at = $2
WHERE tenant = $3 AND session_id = $4 AND key = $5
"""


class EntryStore(SqlStore):
    """Current entries of boards. May include expired ones; callers check the time."""

    async def get(self, session_id: str, key: str) -> Entry | None:
        row = await self._tx.one(
            _ENTRY + "WHERE e.tenant = $1 AND e.session_id = $2 AND e.key = $3", self._tenant, session_id, key
        )
        return None if row is None else _entry(row)

    async def read(self, session_id: str, keys: Sequence[str]) -> Sequence[EntryWithValue]:
        """Return the keys that exist, with their values."""
        found = []
        for key in keys:
            row = await self._tx.one(
                _WITH_VALUE + "WHERE e.tenant = $1 AND e.session_id = $2 AND e.key = $3", self._tenant, session_id, key
            )
            if row is not None:
                found.append(_with_value(row))
        return found

    async def list(self, session_id: str) -> Sequence[Entry]:
        """Return all entries, by key."""
        rows = await self._tx.all(
            _ENTRY + "WHERE e.tenant = $1 AND e.session_id = $2 ORDER BY e.key", self._tenant, session_id
        )
        return [_entry(row) for row in rows]

    async def keys_after(self, session_id: str, key: str, limit: int) -> Sequence[str]:
        """Return the next keys after one, in order."""
        rows = await self._tx.all(_KEYS_AFTER, self._tenant, session_id, key, limit)
        return [row[0] for row in rows]

    async def read_all(self, session_id: str) -> Sequence[EntryWithValue]:
        """Return all entries with their values, by key."""
        rows = await self._tx.all(
            _WITH_VALUE + "WHERE e.tenant = $1 AND e.session_id = $2 ORDER BY e.key", self._tenant, session_id
        )
        return [_with_value(row) for row in rows]

    async def put(self, session_id: str, entry: Entry) -> None:
        await self._tx.run(_PUT, *self._row_of(session_id, entry))

    async def put_all(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Put many entries at once."""
        await self._tx.many(_PUT, [self._row_of(session_id, entry) for entry in entries])

    def _row_of(self, session_id: str, entry: Entry) -> tuple[Value, ...]:
        for acl in (entry.readable_by, entry.writable_by):
            if acl != ANYONE:
                self._tx.named_types |= named_types(acl)
        return (
            self._tenant,
            session_id,
            entry.key,
            entry.incarnation,
            entry.version,
            entry.blob_hash,
            entry.tokens,
            entry.written_by,
            entry.written_at,
            entry.expires_at,
            encode_patterns(entry.readable_by),
            encode_patterns(entry.writable_by),
            encode_label(entry.trust),
            entry.media_type,
        )

    async def remove(self, session_id: str, key: str) -> None:
        await self._tx.run(_REMOVE, self._tenant, session_id, key)

    async def remove_all(self, session_id: str, keys: Sequence[str]) -> None:
        """Remove many entries at once."""
        await self._tx.many(_REMOVE, [(self._tenant, session_id, key) for key in keys])

    async def count(self, session_id: str) -> int:
        """Return the number of entries."""
        row = await self._tx.one(
            "SELECT COUNT(*) FROM entries WHERE tenant = $1 AND session_id = $2", self._tenant, session_id
        )
        return int(row[0]) if row else 0

    async def next_expiry(self, session_id: str) -> int | None:
        """Return when the next entry expires, if any does."""
        row = await self._tx.one(
            "SELECT MIN(expires_at) FROM entries WHERE tenant = $1 AND session_id = $2", self._tenant, session_id
        )
        return None if row is None else row[0]

    async def add_reads(self, session_id: str, key: str, reads: int, last_read_at: int) -> None:
        await self._tx.run(_ADD_READS, reads, last_read_at, self._tenant, session_id, key)


def _entry(row: Row) -> Entry:
    *plain, readable_by, writable_by, reads, last_read_at, trust, media_type = row[:14]
    acls = decode_patterns(readable_by), decode_patterns(writable_by)
    return Entry(*plain, *acls, reads, last_read_at, (), decode_label(trust), media_type)  # type: ignore[call-arg]


def _with_value(row: Row) -> EntryWithValue:
    return EntryWithValue(_entry(row), text_of(row[14]))
