"""What values outside the database need: a place for their bytes, and an index of what is there.

The bytes and the index cannot change in one step, so every object has a state, and the index is always the first to
know: pending before an upload begins, deleting before a removal does. Whatever a crash leaves behind is in the index.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.object_storage.model import ObjectState


class ObjectStore(Protocol):
    """Where bytes are kept by path: a folder, or a bucket."""

    async def put(self, path: str, content: bytes) -> str | None:
        """Keep bytes durably and return the version the store gave them, if it has versions."""
        ...

    async def get(self, path: str, version: str | None, size: int) -> bytes:
        """Return the bytes, of one version if it is given; ObjectDamaged if they are not so many as expected."""
        ...

    async def delete(self, path: str) -> None:
        """Remove what is there. Nothing being there is fine."""
        ...


class StoredObject(msgspec.Struct, frozen=True):
    """What the index knows of an object."""

    path: str
    state: ObjectState
    size: int
    uploaded: bool
    version: str | None
    at: int


class UploadDecision(Enum):
    """What is to be done about an object that someone wants stored. What is there may still have come to harm."""

    THERE = "there"
    TO_UPLOAD = "to_upload"
    LEAVING = "leaving"


class Begun(NamedTuple):
    """How an object stands, and when it began to; an upload counts only for the beginning it belongs to.

    ``version`` is the one a store gave to what is there, if it has versions.
    """

    standing: UploadDecision
    at: int
    version: str | None = None


class ObjectIndex(Protocol):
    """Every object of the transaction's tenant, with its state."""

    async def begin(self, path: str, size: int, now: int) -> Begun:
        """Note that an object is about to be stored. One that was doomed is wanted again, and uploaded again."""
        ...

    async def uploaded(self, path: str, begun_at: int, version: str | None) -> bool:
        """Note that the bytes are stored, perhaps once more; False if the object was doomed or begun anew meanwhile."""
        ...

    async def keep(self, path: str) -> bool:
        """Keep an uploaded object for as long as it is not doomed; False if it is not there, or on its way out."""
        ...

    async def doom(self, path: str) -> None:
        """Let an object go that nothing points to any more. It goes a while after ``claim`` first met it."""
        ...

    async def find(self, path: str) -> StoredObject | None: ...

    async def claim(self, now: int, limit: int) -> Sequence[str]:
        """Take objects to remove: doomed a while ago, uploads given up, and what a dead process had claimed."""
        ...

    async def cleared(self, path: str, claimed_at: int) -> None:
        """Forget an object that was removed under this claim."""
        ...
