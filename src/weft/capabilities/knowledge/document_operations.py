"""Putting documents: one, or many small ones at once."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

import msgspec

from weft.capabilities.access.audit import AuditTrail
from weft.capabilities.knowledge.document_content import PackedContent, content_of, packed
from weft.capabilities.knowledge.document_queries import GetDocument
from weft.capabilities.knowledge.documents import (
    About,
    Documents,
    Metadata,
    Pinned,
    Put,
    Timestamp,
    Title,
    Value,
    Weight,
)
from weft.capabilities.knowledge.model import (
    DocumentId,
    DocumentTooLarge,
    DomainName,
    DomainNotFound,
    MediaType,
    State,
)
from weft.capabilities.knowledge.quotas import QuotaExceeded
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, Operation, RateClass, Request, Response, operation
from weft.kernel.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Sequence

Text = Annotated[str, msgspec.Meta(max_length=16_777_216, description="What it holds, as text.")]
Encoded = Annotated[
    str, msgspec.Meta(max_length=22_369_624, description="What it holds, in base64: a PDF, for example.")
]


class FileTerms(TypedDict, total=False):
    """What may be said of a file that is put as a document."""

    media_type: str
    title: str
    metadata: dict[str, Value]
    pinned: bool
    importance: float
    timestamp: datetime


class NewDocument(Request):
    """A document. Give one of text and content."""

    document_id: DocumentId
    text: Text | None = None
    content: Encoded | None = None
    media_type: MediaType | None = None
    title: Title = None
    metadata: Metadata = None
    pinned: Pinned = False
    importance: Weight = None
    timestamp: Timestamp = None


# Not kw_only, so that the domain is the first field.
class AddDocument(NewDocument, kw_only=False):
    """A document and its domain. Give one of text and content."""

    domain: DomainName  # type: ignore[misc] # those of NewDocument are keyword-only


class AddDocuments(Request):
    """Several documents, and the domain they belong to."""

    domain: DomainName
    documents: Annotated[
        tuple[NewDocument, ...], msgspec.Meta(min_length=1, max_length=100, description="The documents.")
    ]


class DocumentPut(Response, omit_defaults=False):
    """A document that was put. Searches find it once it is indexed; ``unchanged`` tells that nothing had to be done."""

    on_record = ("version",)

    domain: str
    document_id: str
    version: int
    state: State
    unchanged: bool
    bytes: int
    digest: str


class DocumentsPut(Response):
    """What became of each document, in the order in which they were given."""

    documents: list[DocumentPut]


class Prepared(NamedTuple):
    """A document, ready to be kept."""

    document_id: str
    about: About
    content: PackedContent


class DocumentWrites(msgspec.Struct, frozen=True):
    """Adds documents in one transaction, with an audit row for each that changed."""

    documents: Documents
    audit: AuditTrail

    async def put_all(self, operation: Operation, domain: str, prepared: Sequence[Prepared]) -> list[Put]:
        puts = [await self.documents.put(domain, each.document_id, each.about, each.content) for each in prepared]
        for put in puts:
            if not put.unchanged:
                which = GetDocument(domain=domain, document_id=put.document.document_id)
                await self.audit.record(operation, which, described(put))
        return puts


@operation(
    "knowledge.add_document",
    tool="knowledge",
    action="add_document",
    http="POST /v1/domains/{domain}/documents",
    permission=Permission.WRITE,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.OWN_TRANSACTIONS,
    audited=True,
    off_record=("text", "content", "title", "metadata"),
    errors=(DomainNotFound, DocumentTooLarge, QuotaExceeded),
)
async def add_document(request: AddDocument, actor: Actor, writes: Transactions[DocumentWrites]) -> DocumentPut:
    """Put a document into a domain, in place of the one of that name if there is one.

    It is cut, embedded and indexed soon after; until then searches find what was there before.
    """
    prepared = await asyncio.to_thread(_prepared, request)
    put = await writes.write(actor, lambda tx: tx.put_all(add_document, request.domain, [prepared]))
    return described(*put)


@operation(
    "knowledge.add_documents",
    tool="knowledge",
    action="add_documents",
    http="POST /v1/domains/{domain}/documents/batch",
    permission=Permission.WRITE,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.OWN_TRANSACTIONS,
    audited=True,
    off_record=("documents",),
    errors=(DomainNotFound, DocumentTooLarge, QuotaExceeded),
)
async def add_documents(request: AddDocuments, actor: Actor, writes: Transactions[DocumentWrites]) -> DocumentsPut:
    """Put many small documents into a domain at once: all of them, or none if one cannot be taken."""
    names = [document.document_id for document in request.documents]
    if len(set(names)) < len(names):
        raise InvalidInput("documents: two of them have the same document_id.", field="documents")
    prepared = await asyncio.to_thread(lambda: [_prepared(document) for document in request.documents])
    put = await writes.write(actor, lambda tx: tx.put_all(add_documents, request.domain, prepared))
    return DocumentsPut(documents=[described(each) for each in put])


def about_of(request: NewDocument) -> About:
    return About(**{name: getattr(request, name) for name in About.__struct_fields__})


def described(put: Put) -> DocumentPut:
    document = put.document
    return DocumentPut(
        domain=document.domain,
        document_id=document.document_id,
        version=document.version,
        state=document.state,
        unchanged=put.unchanged,
        bytes=document.bytes,
        digest=document.digest,
    )


def _prepared(request: NewDocument) -> Prepared:
    content = packed(content_of(request.text, request.content))
    return Prepared(request.document_id, about_of(request), content)
