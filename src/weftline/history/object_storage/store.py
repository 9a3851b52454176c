"""Ports of object storage: the store of bytes, and the index of objects in the database.

Store and index cannot change atomically, so the index is always written first: pending before an upload, deleting
before a removal. Whatever a crash leaves in the store is therefore in the index.
A transaction must not wait for the object store. An operation therefore stages large values first; its transaction then
keeps them, which fails if they were swept meanwhile; values for the answer are fetched after the commit.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from weftline.history.object_storage.model import ObjectBusy, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.history.object_storage.model import ObjectState, Pointer
    from weftline.history.object_storage.sql import ObjectIndex

_NOT_THERE = (
    "Nothing was changed. Repeat the same call; if that fails, write the value again or restore it from a backup."
)


class ObjectStore(Protocol):
    """Bytes by path, in a folder or a bucket."""

    async def put(self, path: str, content: bytes) -> str | None:
        """Store bytes durably and return their version, if the store has versions."""
        ...

    async def get(self, path: str, version: str | None, size: int) -> bytes:
        """Return the bytes of an object or of one version; ObjectDamaged if the size differs."""
        ...

    async def delete(self, path: str) -> None:
        """Delete an object; idempotent."""
        ...


class StoredObject(msgspec.Struct, frozen=True):
    """The index entry of an object."""

    path: str
    state: ObjectState
    size: int
    uploaded: bool
    version: str | None
    at: int


class UploadDecision(Enum):
    """Whether an object must be uploaded; one that is there may still be damaged."""

    THERE = "there"
    TO_UPLOAD = "to_upload"
    LEAVING = "leaving"


class UploadStart(NamedTuple):
    """The start of an upload; ``at`` identifies it, so that an upload that was superseded is ignored.

    ``version`` is the store's version of the present object, if it has versions.
    """

    decision: UploadDecision
    at: int
    version: str | None = None


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
