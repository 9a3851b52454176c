"""Content-addressed values in SQL: stored once, deleted when unreferenced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.object_storage import ObjectIndex
from weftline.kernel.packed_text import pack, text_of
from weftline.kernel.transaction import SqlStore, batches, placeholders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PUT = """
INSERT INTO blobs (tenant, hash, content, object) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, hash) DO UPDATE SET object = COALESCE(blobs.object, excluded.object)
"""
_SWEEP_BATCH = 200
_READ = f"SELECT hash, content FROM blobs WHERE tenant = $1 AND hash IN ({placeholders(2)})"  # noqa: S608 - placeholders
# Locked in the order of their hashes, so that pruning cannot delete them meanwhile.
_LOCK = f"SELECT hash FROM blobs WHERE tenant = $1 AND hash IN ({placeholders(2)}) ORDER BY hash {{for_update}}"  # noqa: S608 - likewise
_DELETE_UNREFERENCED = """
DELETE FROM blobs WHERE tenant = $1 AND hash = $2 AND NOT EXISTS (
    SELECT 1 FROM changes c WHERE c.tenant = $1 AND c.blob_hash = $2 AND c.pruned = 0)
  AND NOT EXISTS (SELECT 1 FROM changes c WHERE c.tenant = $1 AND c.sealed_hash = $2 AND c.pruned = 0)
"""
_DOUBT = """
INSERT INTO doubtful_blobs (tenant, hash)
SELECT tenant, hash FROM blobs WHERE tenant = $1 AND hash = $2 ON CONFLICT DO NOTHING
"""


class Blobs(SqlStore):
    """Values of one tenant."""

    async def put(self, blob_hash: bytes, content: str, outside: str | None) -> None:
        # The update locks the row, so that pruning cannot delete it meanwhile. A value may equal the text of a
        # pointer: setting the object makes sure that it is deleted with the row.
        await self._tx.run(_PUT, self._tenant, blob_hash, pack(content), outside)

    async def put_all(self, contents: Mapping[bytes, str]) -> None:
        """Store many values, sorted by hash to prevent deadlocks with concurrent writers."""
        known = {
            row[0] for batch in batches(sorted(contents)) for row in await self._tx.all(_LOCK, self._tenant, *batch)
        }
        new = [(self._tenant, each, pack(contents[each]), None) for each in sorted(contents) if each not in known]
        await self._tx.many(_PUT, new)

    async def read(self, hashes: Iterable[bytes]) -> dict[bytes, str]:
        """Return the stored values among these hashes."""
        found: dict[bytes, str] = {}
        for batch in batches(list(dict.fromkeys(hashes))):
            found |= {row[0]: text_of(row[1]) for row in await self._tx.all(_READ, self._tenant, *batch)}
        return found

    async def forget(self, hashes: Iterable[bytes]) -> int:
        """Delete the values that no change refers to, and return the freed bytes."""
        return sum([await self._forget(blob_hash) for blob_hash in sorted(set(hashes))])

    async def sweep(self) -> None:
        """Retry values that were locked at the first attempt."""
        rows = await self._tx.all(
            "SELECT hash FROM doubtful_blobs WHERE tenant = $1 ORDER BY hash LIMIT $2 {for_update_unless_locked}",
            self._tenant,
            _SWEEP_BATCH,
        )
        for (blob_hash,) in rows:
            await self._tx.run("DELETE FROM doubtful_blobs WHERE tenant = $1 AND hash = $2", self._tenant, blob_hash)
        await self.forget(row[0] for row in rows)

    async def _forget(self, blob_hash: bytes) -> int:
        # Lock first, then check references in a new statement that sees what was committed before the lock. Locked rows
        # are skipped: waiting for a concurrent writer or pruner could deadlock.
        locked = await self._tx.one(
            "SELECT object, LENGTH(content) FROM blobs WHERE tenant = $1 AND hash = $2 {for_update_unless_locked}",
            self._tenant,
            blob_hash,
        )
        if locked is None:
            await self._doubt(blob_hash)
            return 0
        gone = await self._tx.changed(_DELETE_UNREFERENCED, self._tenant, blob_hash)
        outside, size = locked
        if gone and outside is not None:
            await ObjectIndex(self._tx).doom(outside)
        return int(size) if gone else 0

    async def _doubt(self, blob_hash: bytes) -> None:
        """Queue a value that another transaction has locked for the next sweep."""
        await self._tx.run(_DOUBT, self._tenant, blob_hash)
