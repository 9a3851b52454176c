"""The documents of a domain: putting them, finding them, taking them away."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import msgspec

from weft.capabilities.indexing.collections.model import domain_collection
from weft.capabilities.indexing.collections.store import CollectionStore
from weft.capabilities.knowledge.document_content import PackedContent
from weft.capabilities.knowledge.domains import Domains, domain_event
from weft.capabilities.knowledge.model import (
    Document,
    DocumentNotFound,
    Domain,
    Importance,
    State,
    check_document_id,
    check_may_pin,
    check_may_write,
)
from weft.capabilities.knowledge.quotas import check_bytes
from weft.capabilities.knowledge.store import DocumentStore
from weft.kernel.clock import from_micros, optional_datetime, to_micros
from weft.kernel.events import NewEvent
from weft.kernel.fields import ShortText
from weft.kernel.json_input import metadata_json, raw_json
from weft.kernel.operation import Response

# What can be asked for by equality.
Value = str | int | float | bool | None
_encode = msgspec.json.Encoder(order="deterministic").encode
# What searches find of a document stays while another version of it is being indexed.
_FOUND = ("indexed_version", "indexed_content", "indexed_at", "indexed_title", "indexed_type", "text_bytes", "chunks")


Title = Annotated[ShortText | None, msgspec.Meta(description="Its title; the one it has itself if left out.")]
Metadata = Annotated[dict[str, Value] | None, msgspec.Meta(description="Names and values that searches can ask for.")]
Pinned = Annotated[bool, msgspec.Meta(description="Whatever is asked, it is found; needs clearance 3 or admin.")]
Weight = Annotated[Importance | None, msgspec.Meta(description="From 0 to 1; as its domain says if left out.")]
Timestamp = Annotated[datetime | None, msgspec.Meta(description="When it was written; when it was put if left out.")]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a document beside what it holds."""

    media_type: str | None = None
    title: str | None = None
    metadata: dict[str, Value] | None = None
    pinned: bool = False
    importance: float | None = None
    timestamp: datetime | None = None


class DocumentInfo(Response, omit_defaults=False):
    """A document. Searches find indexed_version (0: none yet) of it, in so many chunks.

    While a later version is being indexed, chunks_done of chunks_total are there.
    """

    domain: str
    document_id: str
    state: State
    version: int
    indexed_version: int
    media_type: str
    title: str
    metadata: dict[str, Value]
    pinned: bool
    importance: float | None
    timestamp: datetime
    bytes: int
    digest: str
    chunks: int
    chunks_done: int
    chunks_total: int | None
    error: str | None
    added_by: str
    created_at: datetime
    updated_at: datetime
    indexed_at: datetime | None


class Put(NamedTuple):
    """A document after it was put; ``unchanged`` if it was there just so already."""

    document: Document
    unchanged: bool


class Documents(msgspec.Struct, frozen=True):
    """Documents of domains, with what searches find of them."""

    domains: Domains
    documents: DocumentStore
    collections: CollectionStore

    async def find(self, domain: Domain, document_id: str) -> Document:
        found = await self.documents.find(domain.domain, document_id)
        if found is None:
            raise _unknown(domain, document_id)
        return found

    async def put(self, domain: str, document_id: str, about: About, content: PackedContent) -> Put:
        """Keep a document and have it indexed, unless it is there just so. What failed is tried again."""
        check_document_id(document_id)
        # Before anything is made of them.
        metadata_json(about.metadata)
        place = await self._writable(domain)
        if about.pinned:
            check_may_pin(self.domains.actor)
        before = await self.documents.find_locked(domain, document_id)
        fingerprint = _fingerprint(about, content)
        if before is not None and before.fingerprint == fingerprint and before.state != "failed":
            return Put(before, unchanged=True)
        document = self._next(place, document_id, before, about, content, fingerprint)
        await self.documents.put(document, content.packed, self.domains.now)
        size = document.counted - (before.counted if before else 0)
        await self.domains.domains.count(domain, documents=int(before is None), size=size)
        event = "document.added" if before is None else "document.updated"
        await self.domains.tell(document_event(event, place, document, self.domains.actor.participant))
        # Behind the event, for which a tenant's writers wait in line: no two can both be the last that is allowed.
        check_bytes(await self.domains.plan(), sum(each.bytes for each in await self.domains.domains.all()))
        return Put(document, unchanged=False)

    async def remove(self, domain: str, document_id: str) -> Document:
        """Take a document away, and with it all that searches find of it."""
        place = await self._writable(domain)
        document = await self.documents.find_locked(domain, document_id)
        if document is None:
            raise _unknown(place, document_id)
        await self.documents.delete(domain, document_id)
        await self.collections.remove_item(domain_collection(domain), domain, document_id)
        await self.domains.domains.count(domain, documents=-1, size=-document.counted)
        await self.domains.tell(document_event("document.removed", place, document, self.domains.actor.participant))
        return document

    async def _writable(self, domain: str) -> Domain:
        place = await self.domains.lock(domain)
        check_may_write(place, self.domains.actor)
        return place

    def _next(
        self,
        place: Domain,
        document_id: str,
        before: Document | None,
        about: About,
        content: PackedContent,
        fingerprint: str,
    ) -> Document:
        now, version = self.domains.now, before.version + 1 if before else 1
        found: dict[str, Any] = {name: getattr(before, name) for name in _FOUND} if before else {}
        return Document(
            domain=place.domain,
            document_id=document_id,
            version=version,
            content_version=version,
            digest=content.digest,
            fingerprint=fingerprint,
            bytes=content.size,
            media_type=about.media_type or "",
            title=about.title or "",
            metadata=metadata_json(about.metadata),
            pinned=about.pinned,
            importance=about.importance,
            timestamp=now if about.timestamp is None else _micros(about.timestamp),
            added_by=self.domains.actor.principal_id,
            created_at=before.created_at if before else now,
            updated_at=now,
            **found,
        )


def document_info(document: Document) -> DocumentInfo:
    return DocumentInfo(
        domain=document.domain,
        document_id=document.document_id,
        state=document.state,
        version=document.version,
        indexed_version=document.indexed_version,
        media_type=document.media_type,
        title=document.title,
        metadata=raw_json(document.metadata),
        pinned=document.pinned,
        importance=document.importance,
        timestamp=from_micros(document.timestamp),
        bytes=document.bytes,
        digest=document.digest,
        chunks=document.chunks,
        chunks_done=document.chunks_done,
        chunks_total=document.chunks_total,
        error=document.error,
        added_by=document.added_by,
        created_at=from_micros(document.created_at),
        updated_at=from_micros(document.updated_at),
        indexed_at=optional_datetime(document.indexed_at),
    )


def document_event(event: str, domain: Domain, document: Document, actor: str, /, **data: object) -> NewEvent:
    """Return what is told of a document: to those who may look into its domain."""
    told = {"domain": domain.domain, "document_id": document.document_id, "version": document.version, **data}
    made = domain_event(event, domain, actor, **told)
    return msgspec.structs.replace(made, subject=f"{domain.domain}/{document.document_id}")


def _fingerprint(about: About, content: PackedContent) -> str:
    """Return what tells whether a document is put just as it is there already."""
    said = {name: getattr(about, name) for name in About.__struct_fields__}
    return hashlib.sha256(_encode([content.digest, said])).hexdigest()


def _micros(timestamp: datetime) -> int:
    return to_micros(timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC))


def _unknown(domain: Domain, document_id: str) -> DocumentNotFound:
    shown = document_id[:100]
    return DocumentNotFound(
        f"There is no document '{shown}' in '{domain.domain}'.", resource_type="document", resource_id=shown
    )
