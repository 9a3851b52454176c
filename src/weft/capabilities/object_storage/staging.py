"""Storing values outside before the transaction that needs them, and reading them after it.

Nothing in a transaction may wait for object storage. So an operation stages its large values first; its transaction
then keeps them, which fails if they were swept away meanwhile; and when that is over it fetches what it shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from weft.capabilities.object_storage.model import ObjectBusy, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.object_storage.model import Pointer
    from weft.capabilities.object_storage.store import ObjectIndex


_NOT_THERE = (
    "Nothing was changed. Repeat the same call; if it stays so, write the value anew or restore it from a backup."
)


class Staging(Protocol):
    """Values on their way into object storage and out of it."""

    async def stage(self, tenant: str, owner: str, contents: Sequence[bytes], *, epoch: int | None = None) -> None:
        """Store values of an owner. Until a transaction keeps them they may be swept away, an hour later."""
        ...

    async def fetch(self, tenant: str, pointer: Pointer) -> bytes:
        """Return the value a pointer of this tenant stands for, never other bytes than were stored."""
        ...


async def keep_staged(pointers: Iterable[Pointer], index: ObjectIndex) -> None:
    """Keep staged values in the transaction that refers to them, or refuse; always in one order, against deadlock."""
    for path in sorted({pointer.object for pointer in pointers}):
        if not await index.keep(path):
            raise ObjectBusy if await index.find(path) else ObjectMissing(hint=_NOT_THERE)
