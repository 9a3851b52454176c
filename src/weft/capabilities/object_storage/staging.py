"""Uploading large values before the transaction that references them, and reading them after it.

A transaction must not wait for the object store. An operation therefore stages large values first; its transaction then
keeps them, which fails if they were swept meanwhile; values for the answer are fetched after the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from weft.capabilities.object_storage.model import ObjectBusy, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.object_storage.model import Pointer
    from weft.capabilities.object_storage.store import ObjectIndex


_NOT_THERE = (
    "Nothing was changed. Repeat the same call; if that fails, write the value again or restore it from a backup."
)


class Staging(Protocol):
    """Uploads and downloads of large values."""

    async def stage(self, tenant: str, owner: str, contents: Sequence[bytes], *, epoch: int | None = None) -> None:
        """Upload values of an owner. They are swept after an hour unless a transaction keeps them."""
        ...

    async def fetch(self, tenant: str, pointer: Pointer) -> bytes:
        """Return the value of a pointer of this tenant, verified by hash."""
        ...


async def keep_staged(pointers: Iterable[Pointer], index: ObjectIndex) -> None:
    """Keep staged values in the transaction that references them; in sorted order, to avoid deadlocks."""
    for path in sorted({pointer.object for pointer in pointers}):
        if not await index.keep(path):
            raise ObjectBusy if await index.find(path) else ObjectMissing(hint=_NOT_THERE)
