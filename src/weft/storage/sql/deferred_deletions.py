"""What was deleted and has rows left, in SQL: nobody waits until very many of them are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weft.storage.sql.database import Transaction

# So many rows of a table go at once; whoever waits to write meanwhile does not notice.
CLEARED_AT_ONCE = 1_000
_WHOLE_COLLECTION = ""


class Deleted(NamedTuple):
    """A collection that was taken away; or only a place of it, if one is named."""

    collection: str
    place: str = _WHOLE_COLLECTION


class SqlClearings:
    """What is still to be cleared away, as rows of one tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def add(self, deleted: Deleted) -> None:
        await self._tx.run(
            "INSERT INTO clearings (tenant, collection, place) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            self._tenant,
            *deleted,
        )

    async def is_under_way(self, deleted: Deleted) -> bool:
        """Tell whether rows may be left, so that nothing may come in the same place."""
        row = await self._tx.one(
            "SELECT 1 FROM clearings WHERE tenant = $1 AND collection = $2 AND place = $3", self._tenant, *deleted
        )
        return row is not None

    async def next(self) -> Deleted | None:
        row = await self._tx.one(
            "SELECT collection, place FROM clearings WHERE tenant = $1 ORDER BY collection, place LIMIT 1", self._tenant
        )
        return None if row is None else Deleted(*row)

    async def drop(self, deleted: Deleted) -> None:
        await self._tx.run(
            "DELETE FROM clearings WHERE tenant = $1 AND collection = $2 AND place = $3", self._tenant, *deleted
        )


async def tenants_clearing(transaction: Transaction) -> list[str]:
    """Return the tenants that something is still to be cleared away of."""
    rows = await transaction.all("SELECT DISTINCT tenant FROM clearings ORDER BY tenant")
    return [row[0] for row in rows]
