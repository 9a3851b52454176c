"""Storage port of pinned items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.indexing.pins.model import ItemPlace, PinnedItem


class PinStore(Protocol):
    """The pinned items of the transaction's tenant."""

    async def find(self, at: ItemPlace) -> PinnedItem | None: ...

    async def of_place(self, collection: str, place: str) -> Sequence[PinnedItem]:
        """Return the pins of a session, or of the memory of an owner, oldest first."""
        ...

    async def put(self, pin: PinnedItem) -> None: ...

    async def remove(self, at: ItemPlace) -> None: ...
