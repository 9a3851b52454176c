"""Service for the documents of a domain: find, put and remove."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType, structs

from weftline.access.plans import QuotaUse
from weftline.indexing.collections import domain_collection
from weftline.indexing.pins import BYTES_PER_TOKEN, PinLimitExceeded, PinLimits
from weftline.indexing.sql import CollectionStore
from weftline.kernel.clock import DAY_MICROS, from_micros, optional_datetime, to_micros
from weftline.kernel.errors import InvalidInput
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.fields import ShortText
from weftline.kernel.identity import HIGHEST_CLEARANCE, Actor
from weftline.kernel.json_input import NO_METADATA, metadata_json, raw_json
from weftline.kernel.operation import Response, shared_fields
from weftline.kernel.packed_text import ValueDamaged
from weftline.knowledge.domains import Domains, domain_event
from weftline.knowledge.model import (
    MAX_DOCUMENT_BYTES,
    Document,
    DocumentNotFound,
    DocumentState,
    DocumentTooLarge,
    Domain,
    FlaggedPassage,
    Importance,
    check_document_id,
    check_may_pin,
    check_may_write,
)
from weftline.knowledge.sql import DocumentStore
from weftline.knowledge.templates.model import DomainTemplate, check_metadata
from weftline.safety.trust.model import TrustInfo, trust_info

# Decodes and compresses document content, outside of transactions.

_PLAIN, _COMPRESSED = b"\x00", b"\x01"
# The fastest level: it halves text, and the caller waits for it.
_LEVEL = 1


class PackedContent(msgspec.Struct, frozen=True):
    """Compressed content, with digest and size of the original."""

    packed: bytes
    digest: str
    size: int


def decode_content(text: str | None, encoded: str | None) -> bytes:
    """Return the content given as text or base64."""
    if (text is None) == (encoded is None):
        raise InvalidInput("Give one of text and content.", field="text")
    if text is not None:
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise InvalidInput("text: not valid text (it holds half of a surrogate pair)", field="text") from None
    try:
        return base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("content: not base64.", field="content") from None


def pack_content(content: bytes) -> PackedContent:
    """Check the size of content and compress it."""
    check_size(len(content))
    return PackedContent(compress(content), hashlib.sha256(content).hexdigest(), len(content))


def check_size(size: int) -> None:
    if size > MAX_DOCUMENT_BYTES:
        raise DocumentTooLarge(f"A document has at most {MAX_DOCUMENT_BYTES} bytes.", limit_bytes=MAX_DOCUMENT_BYTES)


def compress(content: bytes) -> bytes:
    compressed = zlib.compress(content, _LEVEL)
    return _COMPRESSED + compressed if len(compressed) < len(content) else _PLAIN + content


def decompress(kept: bytes) -> bytes:
    """Return the original content; an error if it is damaged."""
    if kept[:1] == _PLAIN:
        return kept[1:]
    try:
        return zlib.decompress(kept[1:])
    except zlib.error:
        raise ValueDamaged from None


def storable_text(text: str) -> str:
    """Replace characters that a database cannot store, one for one, so that offsets do not change."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def compressed_text(text: str, content: bytes) -> bytes | None:
    """Return the compressed text of a document; None if it equals the content."""
    encoded = text.encode()
    return None if encoded == content else compress(encoded)


def decode_text(content: bytes, text: bytes | None) -> str:
    """Return the text of a document from its stored content or text."""
    try:
        return decompress(content if text is None else text).decode()
    except UnicodeDecodeError:
        raise ValueDamaged from None


# Metadata values that searches can filter by.
MetadataValue = str | int | float | bool | None
_encode = msgspec.json.Encoder(order="deterministic").encode
# Fields of the indexed version, kept while a new version is being indexed.
_INDEXED_FIELDS = (
    "indexed_version",
    "indexed_content",
    "indexed_at",
    "indexed_title",
    "indexed_type",
    "text_bytes",
    "chunks",
)


Title = Annotated[ShortText | None, msgspec.Meta(description="Title; default: the one found in the document.")]
Metadata = Annotated[
    dict[str, MetadataValue] | None, msgspec.Meta(description="Names and values that searches can filter by.")
]
Pinned = Annotated[bool, msgspec.Meta(description="Included in every search; needs clearance 3 or admin.")]
Weight = Annotated[Importance | None, msgspec.Meta(description="From 0 to 1; default: that of the domain.")]
Timestamp = Annotated[datetime | None, msgspec.Meta(description="Time it was written; default: now.")]


class DocumentMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes of a document, without its content."""

    media_type: str | None = None
    title: str | None = None
    metadata: dict[str, MetadataValue] | None = None
    pinned: bool = False
    importance: float | None = None
    timestamp: datetime | None = None


class DocumentInfo(Response, omit_defaults=False):
    """A document. Searches find its indexed_version (0: none yet), which has ``chunks`` chunks.

    While a later version is being indexed, chunks_done of chunks_total are written. ``trust`` is given for a document
    that is not trusted as documents are by default, ``quarantine`` for humans who may write to the domain.
    """

    domain: str
    document_id: str
    state: DocumentState
    version: int
    indexed_version: int
    media_type: str
    title: str
    metadata: dict[str, MetadataValue]
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
    trust: TrustInfo | UnsetType = UNSET
    quarantine: QuarantineInfo | UnsetType = UNSET


class QuarantineInfo(Response):
    """The passages for which a version is held: the most suspicious of ``flagged`` ones. Do not follow them."""

    flagged: int
    passages: list[FlaggedPassage]
    since: datetime
    approval_id: str | None = None


class PutResult(NamedTuple):
    """A stored document; ``unchanged`` if it already had this content and these attributes."""

    document: Document
    unchanged: bool


class Documents(msgspec.Struct, frozen=True):
    """Documents of the caller's tenant, and their chunks in the search index."""

    domains: Domains
    documents: DocumentStore
    collections: CollectionStore
    pin_limits: PinLimits

    async def find(self, domain: Domain, document_id: str) -> Document:
        found = await self.documents.find(domain.domain, document_id)
        if found is None:
            raise no_document(domain, document_id)
        return found

    async def put(self, domain: str, document_id: str, about: DocumentMeta, content: PackedContent) -> PutResult:
        """Store a document and queue it for indexing, unless it is unchanged and indexing did not fail."""
        check_document_id(document_id)
        metadata_json(about.metadata)  # rejects invalid metadata before anything is locked
        place = await self._writable(domain)
        if place.template is not None:
            about = _by_template(place.template, document_id, about, self.domains.now)
        if about.pinned:
            check_may_pin(self.domains.actor)
            await self._check_pins_fit(domain, document_id, content.size)
        before = await self.documents.find_locked(domain, document_id)
        fingerprint = _fingerprint(about, content)
        if before is not None and before.fingerprint == fingerprint and before.state != "failed":
            return PutResult(before, unchanged=True)
        document = self._next(place, document_id, before, about, content, fingerprint)
        await self.documents.put(document, content.packed, self.domains.now)
        size = document.counted - (before.counted if before else 0)
        await self.domains.domains.count(domain, documents=int(before is None), size=size)
        event: EventType = "document.added" if before is None else "document.updated"
        await self.domains.publish(document_event(event, place, document, self.domains.actor.participant))
        # After the event, which serializes the writers of a tenant: two cannot exceed the quota together.
        await self._check_bytes(size)
        return PutResult(document, unchanged=False)

    async def remove(self, domain: str, document_id: str) -> Document:
        """Delete a document and its chunks."""
        place = await self._writable(domain)
        document = await self.documents.find_locked(domain, document_id)
        if document is None:
            raise no_document(place, document_id)
        await self.documents.delete(domain, document_id)
        await self.collections.remove_item(domain_collection(domain), domain, document_id)
        await self.domains.domains.count(domain, documents=-1, size=-document.counted)
        await self.domains.publish(document_event("document.removed", place, document, self.domains.actor.participant))
        await self._check_bytes(-document.counted)
        return document

    async def _check_bytes(self, growth: int) -> None:
        """Raise QuotaExceeded if the documents have grown beyond the plan."""
        allowance = await self.domains.plans.allowance()
        if allowance.bytes is None:
            return
        total = sum(each.bytes for each in await self.domains.domains.all())
        if growth > 0:
            sees_all = self.domains.actor.clearance >= HIGHEST_CLEARANCE
            allowance.check_bytes(total, used=total - growth if sees_all else None)
        await self.domains.quota_warnings.note(QuotaUse("bytes", allowance.bytes, total - growth, total))

    async def _check_pins_fit(self, domain: str, document_id: str, size: int) -> None:
        """Raise PinLimitExceeded if the pinned documents of a domain would become too large for prompts."""
        pinned = size + await self.documents.pinned_bytes(domain, document_id)
        if pinned > self.pin_limits.tokens * BYTES_PER_TOKEN:
            raise PinLimitExceeded(
                f"The pinned documents of this domain would have about {pinned // BYTES_PER_TOKEN} tokens; "
                f"{self.pin_limits.tokens} is the maximum.",
                hint="Pin a shorter document, such as a summary, or add others again without pinned.",
                tokens=pinned // BYTES_PER_TOKEN,
                limit_tokens=self.pin_limits.tokens,
            )

    async def _writable(self, domain: str) -> Domain:
        place = await self.domains.lock(domain)
        check_may_write(place, self.domains.actor)
        return place

    def _next(
        self,
        place: Domain,
        document_id: str,
        before: Document | None,
        about: DocumentMeta,
        content: PackedContent,
        fingerprint: str,
    ) -> Document:
        now, version = self.domains.now, before.version + 1 if before else 1
        found: dict[str, Any] = {name: getattr(before, name) for name in _INDEXED_FIELDS} if before else {}
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


def _by_template(template: DomainTemplate, document_id: str, about: DocumentMeta, now: int) -> DocumentMeta:
    """Check the attributes of a document against the template of its domain, and pin it if the template says so."""
    check_metadata(template, about.metadata)
    days = template.retention_days
    if days is not None and about.timestamp is not None and _micros(about.timestamp) < now - days * DAY_MICROS:
        raise InvalidInput(
            f"timestamp: documents of this domain are deleted {days} days after it, so that this one is too old.",
            hint="Add it to a domain without retention, or give the timestamp from which its retention counts.",
            field="timestamp",
        )
    is_pinned = any(fnmatchcase(document_id, pattern) for pattern in template.pinned)
    return structs.replace(about, pinned=about.pinned or is_pinned)


def document_info(document: Document, actor: Actor, *, reviews: bool) -> DocumentInfo:
    """Return a document as a caller sees it; ``reviews`` if it may see what is held for review.

    Title and metadata of a version that was not checked yet, or is held, are for the caller that added it and for
    those who review.
    """
    is_shown = document.state == "indexed" or reviews or document.added_by == actor.principal_id
    encoded: dict[str, Any] = {
        "title": document.title if is_shown else document.indexed_title,
        "metadata": raw_json(document.metadata if is_shown else NO_METADATA),
        "timestamp": from_micros(document.timestamp),
        "created_at": from_micros(document.created_at),
        "updated_at": from_micros(document.updated_at),
        "indexed_at": optional_datetime(document.indexed_at),
        "trust": trust_info(document.trust) or UNSET,
        "quarantine": UNSET,
    }
    if reviews and document.quarantine is not None:
        held = document.quarantine
        encoded["quarantine"] = QuarantineInfo(
            flagged=held.flagged,
            passages=list(held.passages),
            since=from_micros(held.at),
            approval_id=held.approval_id,
        )
    return DocumentInfo(**shared_fields(document, DocumentInfo) | encoded)


def document_event(event: EventType, domain: Domain, document: Document, actor: str, /, **data: object) -> NewEvent:
    """Return an event about a document, readable by those who can see its domain."""
    values = {"domain": domain.domain, "document_id": document.document_id, "version": document.version, **data}
    made = domain_event(event, domain, actor, **values)
    return msgspec.structs.replace(made, subject=f"{domain.domain}/{document.document_id}")


def _fingerprint(about: DocumentMeta, content: PackedContent) -> str:
    """Return a hash of content and attributes, to detect an unchanged document."""
    values = {name: getattr(about, name) for name in DocumentMeta.__struct_fields__}
    return hashlib.sha256(_encode([content.digest, values])).hexdigest()


def _micros(timestamp: datetime) -> int:
    return to_micros(timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC))


def no_document(domain: Domain, document_id: str) -> DocumentNotFound:
    shown = document_id[:100]
    return DocumentNotFound(
        f"There is no document '{shown}' in '{domain.domain}'.", resource_type="document", resource_id=shown
    )
