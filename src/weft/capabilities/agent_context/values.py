"""How a value is kept: as JSON in the database, or outside it with a pointer in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.agent_context.model import INLINE_BYTES, MemoryType
from weft.capabilities.history.model import ChangeMeta, blob_hash
from weft.capabilities.object_storage.model import Pointer

if TYPE_CHECKING:
    from weft.capabilities.history.model import Version


class EntryText(NamedTuple):
    """What an entry is to say: the text that history keeps, and what belongs to it.

    ``pointer`` leads to the value where it is kept outside; the text is then how the pointer is written.
    """

    text: str
    meta: ChangeMeta
    pointer: Pointer | None = None

    @property
    def hash(self) -> bytes:
        return blob_hash(self.text)


class GivenValue(NamedTuple):
    """A value as it came: its bytes, which are JSON unless a media type says otherwise, and JSON text about it."""

    content: bytes
    media_type: str | None = None
    metadata: str | None = None

    @property
    def metadata_hash(self) -> str | None:
        return None if self.metadata is None else blob_hash(self.metadata).hex()


def lies_outside(given: GivenValue, memory_type: str) -> bool:
    """Tell whether a value belongs in object storage: what is large, is no JSON, or is an artifact."""
    return given.media_type is not None or memory_type == MemoryType.WORK_ARTIFACTS or len(given.content) > INLINE_BYTES


def inline(given: GivenValue) -> EntryText:
    return EntryText(given.content.decode(), ChangeMeta(size=len(given.content), metadata_hash=given.metadata_hash))


def outside(given: GivenValue, tenant: str, owner: str) -> EntryText:
    pointer = Pointer.to(tenant, owner, given.content)
    meta = ChangeMeta(size=pointer.size, metadata_hash=given.metadata_hash, outside=True, media_type=given.media_type)
    return EntryText(pointer.encode(), meta, pointer)


def said_by(version: Version) -> EntryText | None:
    """Return what an earlier version said, to say it again; None if history no longer keeps it."""
    if version.value is None:
        return None
    meta = version.change.meta
    if meta.outside:
        return EntryText(version.value, meta, Pointer.decode(version.value))
    # A human who decided about a merge has not counted.
    return EntryText(version.value, structs.replace(meta, size=len(version.value.encode())))
