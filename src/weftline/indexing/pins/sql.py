"""SQL store of pinned items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.indexing.pins.model import ItemPlace, PinnedItem
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Row

_PIN = "SELECT collection, place, item, session_id, tokens, pinned_by, pinned_at FROM pinned_items "


class PinStore(SqlStore):
    """The pinned items of the transaction's tenant."""

    async def find(self, at: ItemPlace) -> PinnedItem | None:
        row = await self._tx.one(
            _PIN + "WHERE tenant = $1 AND collection = $2 AND place = $3 AND item = $4",
            self._tenant,
            at.collection,
            at.place,
            at.item,
        )
        return None if row is None else _pin(row)

    async def of_place(self, collection: str, place: str) -> Sequence[PinnedItem]:
        """Return the pins of a session, or of the memory of an owner, oldest first."""
        rows = await self._tx.all(
            _PIN + "WHERE tenant = $1 AND collection = $2 AND place = $3 ORDER BY pinned_at, item",
            self._tenant,
            collection,
            place,
        )
        return [_pin(row) for row in rows]

    async def put(self, pin: PinnedItem) -> None:
        await self._tx.run(
            """
            INSERT INTO pinned_items (tenant, collection, place, item, session_id, tokens, pinned_by, pinned_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, collection, place, item) DO UPDATE SET
                tokens = excluded.tokens
            """,
            self._tenant,
            pin.at.collection,
            pin.at.place,
            pin.at.item,
            pin.at.session_id or "",
            pin.tokens,
            pin.pinned_by,
            pin.pinned_at,
        )

    async def remove(self, at: ItemPlace) -> None:
        await self._tx.run(
            "DELETE FROM pinned_items WHERE tenant = $1 AND collection = $2 AND place = $3 AND item = $4",
            self._tenant,
            at.collection,
            at.place,
            at.item,
        )


def _pin(row: Row) -> PinnedItem:
    collection, place, item, session_id, *rest = row
    return PinnedItem(ItemPlace(collection, place, item, session_id or None), *rest)
