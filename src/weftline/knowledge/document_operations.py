"""Operations that add documents: one, or a batch."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

import msgspec
from msgspec import structs

from weftline.access.audit import AuditTrail
from weftline.indexing.pins import PinLimitExceeded
from weftline.kernel.errors import InvalidInput, QuotaExceeded
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Effect, Operation, Request, Response, shared_fields
from weftline.kernel.ports import Transactions
from weftline.kernel.thread_pools import SHORT_THREADS
from weftline.knowledge.document_queries import GetDocument
from weftline.knowledge.documents import (
    DocumentMeta,
    Documents,
    Metadata,
    MetadataValue,
    PackedContent,
    Pinned,
    PutResult,
    Timestamp,
    Title,
    Weight,
    decode_content,
    pack_content,
)
from weftline.knowledge.model import (
    DocumentId,
    DocumentState,
    DocumentTooLarge,
    DomainName,
    DomainNotFound,
    MediaType,
    write_operation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLL_SECONDS = 0.05
Text = Annotated[str, msgspec.Meta(max_length=16_777_216, description="Content as text.")]
Encoded = Annotated[str, msgspec.Meta(max_length=22_369_624, description="Content in base64, for example a PDF.")]


class FileOptions(TypedDict, total=False):
    """Attributes of a file that is added as a document."""

    media_type: str
    title: str
    metadata: dict[str, MetadataValue]
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


WaitSeconds = Annotated[
    float, msgspec.Meta(ge=0, le=60, description="How long to wait until searches find it; 0: not at all.")
]


# Not kw_only, so that the domain is the first field.
class AddDocument(NewDocument, kw_only=False):
    """A document and its domain. Give one of text and content."""

    domain: DomainName  # type: ignore[misc] # those of NewDocument are keyword-only
    wait_seconds: WaitSeconds = 0.0


class AddDocuments(Request):
    """A batch of documents and their domain."""

    domain: DomainName
    documents: Annotated[
        tuple[NewDocument, ...], msgspec.Meta(min_length=1, max_length=100, description="Documents to add.")
    ]
    wait_seconds: WaitSeconds = 0.0


class DocumentPut(Response, omit_defaults=False):
    """An added document. Searches find it once it is indexed. ``unchanged``: the same document was already there."""

    on_record = ("version",)

    domain: str
    document_id: str
    version: int
    state: DocumentState
    unchanged: bool
    bytes: int
    digest: str


class DocumentsPut(Response):
    """The added documents, in the order of the request."""

    documents: list[DocumentPut]


class PreparedDocument(NamedTuple):
    """A document with compressed content."""

    document_id: str
    about: DocumentMeta
    content: PackedContent


class DocumentWrites(msgspec.Struct, frozen=True):
    """Adds documents in one transaction, with an audit row for each that changed."""

    documents: Documents
    audit: AuditTrail

    async def put_all(self, operation: Operation, domain: str, prepared: Sequence[PreparedDocument]) -> list[PutResult]:
        puts = [await self.documents.put(domain, each.document_id, each.about, each.content) for each in prepared]
        for put in puts:
            if not put.unchanged:
                which = GetDocument(domain=domain, document_id=put.document.document_id)
                await self.audit.record(operation, which, put_response(put))
        return puts


@write_operation(
    "knowledge.add_document",
    action="add_document",
    http="POST /v1/domains/{domain}/documents",
    effect=Effect.OWN_TRANSACTIONS,
    off_record=("text", "content", "title", "metadata"),
    errors=(DomainNotFound, DocumentTooLarge, QuotaExceeded, PinLimitExceeded),
)
async def add_document(request: AddDocument, actor: Actor, writes: Transactions[DocumentWrites]) -> DocumentPut:
    """Add a document to a domain, or replace the one with the same id.

    It is chunked, embedded and indexed in the background; until then searches find the previous version. With
    wait_seconds the call ends when it is indexed, and ``state`` says so.
    """
    prepared = await SHORT_THREADS.run(_prepared, request)
    put = await writes.write(actor, lambda tx: tx.put_all(add_document, request.domain, [prepared]))
    (answer,) = await _until_indexed(actor, request.domain, put, request.wait_seconds, writes)
    return answer


@write_operation(
    "knowledge.add_documents",
    action="add_documents",
    http="POST /v1/domains/{domain}/documents/batch",
    effect=Effect.OWN_TRANSACTIONS,
    off_record=("documents",),
    errors=(DomainNotFound, DocumentTooLarge, QuotaExceeded, PinLimitExceeded),
)
async def add_documents(request: AddDocuments, actor: Actor, writes: Transactions[DocumentWrites]) -> DocumentsPut:
    """Add a batch of documents to a domain, atomically: all of them or none."""
    names = [document.document_id for document in request.documents]
    if len(set(names)) < len(names):
        raise InvalidInput("documents: two have the same document_id.", field="documents")
    prepared = await SHORT_THREADS.run(lambda: [_prepared(document) for document in request.documents])
    put = await writes.write(actor, lambda tx: tx.put_all(add_documents, request.domain, prepared))
    return DocumentsPut(documents=await _until_indexed(actor, request.domain, put, request.wait_seconds, writes))


async def _until_indexed(
    actor: Actor, domain: str, put: Sequence[PutResult], seconds: float, writes: Transactions[DocumentWrites]
) -> list[DocumentPut]:
    """Return the answers for added documents, once none of them is pending any more or the time is over."""
    answers = {each.document.document_id: put_response(each) for each in put}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline and any(each.state == "pending" for each in answers.values()):
        await asyncio.sleep(_POLL_SECONDS)
        found = await writes.read(actor, lambda tx: tx.documents.documents.find_all(domain, answers))
        for name, document in found.items():
            answers[name] = structs.replace(answers[name], state=document.state)
    return list(answers.values())


def document_meta(request: NewDocument) -> DocumentMeta:
    return DocumentMeta(**shared_fields(request, DocumentMeta))


def put_response(put: PutResult) -> DocumentPut:
    return DocumentPut(**shared_fields(put.document, DocumentPut), unchanged=put.unchanged)


def _prepared(request: NewDocument) -> PreparedDocument:
    content = pack_content(decode_content(request.text, request.content))
    return PreparedDocument(request.document_id, document_meta(request), content)
