"""SQL queue of deferred deletions: large deletions finish in the background, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction

# Rows deleted per table and transaction: small enough that concurrent writers do not notice.
DELETE_BATCH_SIZE = 1_000
_WHOLE_COLLECTION = ""


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


async def tenants_with_deletions(transaction: Transaction) -> list[str]:
    """Return the tenants with deferred deletions."""
    rows = await transaction.all("SELECT DISTINCT tenant FROM deferred_deletions ORDER BY tenant")
    return [row[0] for row in rows]
