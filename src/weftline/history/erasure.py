"""Deletion of lines in bounded transactions: small ones at once, the bulk of large ones in the background.

A line or session is gone with the transaction that deletes it. Rows that only it could show may remain for a while, and
until they are gone its name cannot be used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.history.blobs import Blobs
from weftline.kernel.errors import ServerBusy
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction


# A name in the queue of deferred deletions; no collection has such a name.
LINES = "rows of lines"
# Rows that are deleted at once.
MAX_AT_ONCE = 1_000
BATCH = 500
_RETRY_SECONDS = 5
_WHOLE_COLLECTION = ""
_HAS_MORE = "SELECT 1 FROM {table} WHERE tenant = $1 AND {owner} = $2 LIMIT 1 OFFSET $3"
_SOME_CHANGES = "SELECT key, seq, blob_hash, sealed_hash FROM changes WHERE tenant = $1 AND line_id = $2 LIMIT $3"
_DELETE_CHANGE = "DELETE FROM changes WHERE tenant = $1 AND line_id = $2 AND key = $3 AND seq = $4"
_DELETE_COMMITS = """
DELETE FROM commits WHERE tenant = $1 AND line_id = $2 AND seq IN (
    SELECT seq FROM commits WHERE tenant = $1 AND line_id = $2 LIMIT $3)
"""


class PendingDeletion(NamedTuple):
    """A deleted collection, or one place in it."""

    collection: str
    place: str = _WHOLE_COLLECTION


class DeferredDeletions(SqlStore):
    """Queue of deferred deletions of one tenant."""

    async def add(self, deleted: PendingDeletion) -> None:
        await self._tx.run(
            "INSERT INTO deferred_deletions (tenant, collection, place) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            self._tenant,
            *deleted,
        )

    async def is_pending(self, deleted: PendingDeletion) -> bool:
        """Return whether rows may remain, so that the name cannot be reused yet."""
        row = await self._tx.one(
            "SELECT 1 FROM deferred_deletions WHERE tenant = $1 AND collection = $2 AND place = $3",
            self._tenant,
            *deleted,
        )
        return row is not None

    async def any_pending(self, collection: str, prefix: str) -> bool:
        """Return whether rows may remain of a place that begins with ``prefix``."""
        row = await self._tx.one(
            "SELECT 1 FROM deferred_deletions WHERE tenant = $1 AND collection = $2 AND SUBSTR(place, 1, $3) = $4",
            self._tenant,
            collection,
            len(prefix),
            prefix,
        )
        return row is not None

    async def next(self) -> PendingDeletion | None:
        row = await self._tx.one(
            "SELECT collection, place FROM deferred_deletions WHERE tenant = $1 ORDER BY collection, place LIMIT 1",
            self._tenant,
        )
        return None if row is None else PendingDeletion(*row)

    async def drop(self, deleted: PendingDeletion) -> None:
        await self._tx.run(
            "DELETE FROM deferred_deletions WHERE tenant = $1 AND collection = $2 AND place = $3",
            self._tenant,
            *deleted,
        )


async def defer_line(transaction: Transaction, line_id: str) -> bool:
    """Leave commits and changes of a line to the background if there are many; tell whether they were."""
    if not await is_large(transaction, "changes", "line_id", line_id):
        return False
    await DeferredDeletions(transaction).add(PendingDeletion(LINES, line_id))
    return True


async def check_line_is_gone(transaction: Transaction, line_id: str) -> None:
    """Raise ServerBusy if rows of a deleted line of this name remain: a new one would show them."""
    if await DeferredDeletions(transaction).is_pending(PendingDeletion(LINES, line_id)):
        raise ServerBusy(
            "What had this name before is still being deleted.", retry_after_seconds=_RETRY_SECONDS, context_id=line_id
        )


async def delete_line_batch(transaction: Transaction, line_id: str) -> bool:
    """Delete some rows of a deleted line; tell whether more may remain."""
    rows = await transaction.all(_SOME_CHANGES, transaction.tenant, line_id, BATCH)
    if rows:
        await transaction.many(_DELETE_CHANGE, [(transaction.tenant, line_id, row[0], row[1]) for row in rows])
        await Blobs(transaction).forget(each for row in rows for each in row[2:] if each is not None)
        return True
    return await transaction.changed(_DELETE_COMMITS, transaction.tenant, line_id, BATCH) == BATCH


async def is_large(transaction: Transaction, table: str, owner: str, name: str) -> bool:
    row = await transaction.one(_HAS_MORE.format(table=table, owner=owner), transaction.tenant, name, MAX_AT_ONCE)
    return row is not None


async def tenants_with_deletions(transaction: Transaction) -> list[str]:
    """Return the tenants with deferred deletions."""
    rows = await transaction.all("SELECT DISTINCT tenant FROM deferred_deletions ORDER BY tenant")
    return [row[0] for row in rows]
