"""Values of entries: JSON in the database, or a pointer to object storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.agent_context.model import INLINE_BYTES, MemoryType
from weft.capabilities.history.model import ChangeMeta, blob_hash
from weft.capabilities.object_storage.model import Pointer

if TYPE_CHECKING:
    from weft.capabilities.history.model import Version


class EntryText(NamedTuple):
    """The stored text of an entry with its metadata; for a value in object storage, the encoded ``pointer``."""

    text: str
    meta: ChangeMeta
    pointer: Pointer | None = None

    @property
    def hash(self) -> bytes:
        return blob_hash(self.text)


class NewValue(NamedTuple):
    """A new value: JSON bytes, or bytes of a media type; ``metadata`` is JSON text."""

    content: bytes
    media_type: str | None = None
    metadata: str | None = None

    @property
    def metadata_hash(self) -> str | None:
        return None if self.metadata is None else blob_hash(self.metadata).hex()


def belongs_in_object_storage(given: NewValue, memory_type: str) -> bool:
    """Tell whether a value goes to object storage: large values, binary ones and artifacts."""
    return given.media_type is not None or memory_type == MemoryType.WORK_ARTIFACTS or len(given.content) > INLINE_BYTES


def inline(given: NewValue) -> EntryText:
    return EntryText(given.content.decode(), ChangeMeta(size=len(given.content), metadata_hash=given.metadata_hash))


def as_object(given: NewValue, tenant: str, owner: str) -> EntryText:
    pointer = Pointer.to(tenant, owner, given.content)
    meta = ChangeMeta(size=pointer.size, metadata_hash=given.metadata_hash, outside=True, media_type=given.media_type)
    return EntryText(pointer.encode(), meta, pointer)


def text_of_version(version: Version) -> EntryText | None:
    """Return the text of an earlier version; None if it was pruned."""
    if version.value is None:
        return None
    meta = version.change.meta
    if meta.outside:
        return EntryText(version.value, meta, Pointer.decode(version.value))
    # A value from a merge decision has no size yet.
    return EntryText(version.value, structs.replace(meta, size=len(version.value.encode())))
