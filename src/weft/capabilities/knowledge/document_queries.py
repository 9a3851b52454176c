"""Looking at documents: which there are, how far each is on its way to search, and what they say."""

from __future__ import annotations

from typing import Annotated

import msgspec

from weft.capabilities.knowledge.document_content import text_of
from weft.capabilities.knowledge.documents import DocumentInfo, Documents, document_info
from weft.capabilities.knowledge.model import (
    Document,
    DocumentId,
    DocumentNotFound,
    DocumentNotReady,
    DocumentVersionNotFound,
    DomainName,
    DomainNotFound,
    State,
)
from weft.kernel.errors import InvalidInput
from weft.kernel.fields import Count, Ordinal
from weft.kernel.identity import Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

_LONGEST = 100_000


class ListDocuments(Request):
    """Which documents to list."""

    domain: DomainName
    state: Annotated[State | None, msgspec.Meta(description="Only those in this state.")] = None
    cursor: Annotated[DocumentId | None, msgspec.Meta(description="next_cursor of the page before.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="At most this many.")] = 100


class GetDocument(Request):
    """Which document to show."""

    domain: DomainName
    document_id: DocumentId


class ReadDocument(Request):
    """Which part of a document to read; offsets are in characters, as chunks and results of searches have them."""

    domain: DomainName
    document_id: DocumentId
    start: Annotated[Count, msgspec.Meta(description="From this character on.")] = 0
    end: Annotated[
        Count | None, msgspec.Meta(description="Up to this character, which is not in; at most 100,000 at once.")
    ] = None
    version: Annotated[Ordinal | None, msgspec.Meta(description="Only if this is the version that searches find.")] = (
        None
    )


class DeleteDocument(Request):
    """Which document to delete."""

    domain: DomainName
    document_id: DocumentId


class DocumentList(Response, omit_defaults=False):
    """Documents by name."""

    documents: list[DocumentInfo]
    has_more: bool
    next_cursor: str | None


class DocumentText(Response, omit_defaults=False):
    """Characters of a document from start to end, of so many; next_start is where reading goes on, if there is more."""

    domain: str
    document_id: str
    version: int
    title: str
    media_type: str
    text: str
    start: int
    end: int
    characters: int
    next_start: int | None


class DocumentDeleted(Response):
    """The document is gone, and searches no longer find it."""

    domain: str
    document_id: str


@operation(
    "knowledge.list_documents",
    tool="knowledge",
    action="list_documents",
    http="GET /v1/domains/{domain}/documents",
    permission=Permission.READ,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.READ,
    errors=(DomainNotFound,),
)
async def list_documents(request: ListDocuments, documents: Documents) -> DocumentList:
    """List the documents of a domain, by name, with how far each is on its way to search."""
    domain = await documents.domains.find(request.domain)
    found = await documents.documents.page(domain.domain, request.state, request.cursor or "", request.limit + 1)
    shown, has_more = found[: request.limit], len(found) > request.limit
    return DocumentList(
        documents=[document_info(document) for document in shown],
        has_more=has_more,
        next_cursor=shown[-1].document_id if has_more else None,
    )


@operation(
    "knowledge.get_document",
    tool="knowledge",
    action="get_document",
    http="GET /v1/domains/{domain}/document",
    permission=Permission.READ,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.READ,
    errors=(DomainNotFound, DocumentNotFound),
)
async def get_document(request: GetDocument, documents: Documents) -> DocumentInfo:
    """Show a document: its state, versions and chunks, and why it could not be indexed if so."""
    domain = await documents.domains.find(request.domain)
    return document_info(await documents.find(domain, request.document_id))


@operation(
    "knowledge.read_document",
    tool="knowledge",
    action="read_document",
    http="GET /v1/domains/{domain}/document/text",
    permission=Permission.READ,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.READ,
    heavy=True,
    errors=(DomainNotFound, DocumentNotFound, DocumentNotReady, DocumentVersionNotFound),
)
async def read_document(request: ReadDocument, documents: Documents) -> DocumentText:
    """Read a document's text, or the characters from start to end of it: exactly what a search result refers to."""
    domain = await documents.domains.find(request.domain)
    document = await documents.find(domain, request.document_id)
    text = await indexed_text(documents, document, request.version)
    start, end = _span(request, len(text))
    return DocumentText(
        domain=document.domain,
        document_id=document.document_id,
        version=document.indexed_version,
        title=document.indexed_title,
        media_type=document.indexed_type,
        text=text[start:end],
        start=start,
        end=end,
        characters=len(text),
        next_start=end if end < len(text) else None,
    )


@operation(
    "knowledge.delete_document",
    tool="knowledge",
    action="delete_document",
    http="DELETE /v1/domains/{domain}/document",
    permission=Permission.WRITE,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.WRITE,
    audited=True,
    errors=(DomainNotFound, DocumentNotFound),
)
async def delete_document(request: DeleteDocument, documents: Documents) -> DocumentDeleted:
    """Delete a document. Searches no longer find it from this moment on."""
    document = await documents.remove(request.domain, request.document_id)
    return DocumentDeleted(domain=document.domain, document_id=document.document_id)


async def indexed_text(documents: Documents, document: Document, version: int | None = None) -> str:
    """Return the text of the version that searches find: what offsets of chunks count in."""
    if not document.indexed_version:
        raise DocumentNotReady(f"'{document.document_id}' has not been indexed yet.", state=document.state)
    kept = await documents.documents.kept(document.domain, document.document_id, document.indexed_content)
    if kept is None or version not in {None, document.indexed_version}:
        raise DocumentVersionNotFound(
            f"Version {version} of '{document.document_id}' is not kept.", indexed_version=document.indexed_version
        )
    return text_of(*kept)


def _span(request: ReadDocument, characters: int) -> tuple[int, int]:
    if request.end is not None and request.end < request.start:
        raise InvalidInput("end: before start", field="end")
    start = min(request.start, characters)
    end = characters if request.end is None else request.end
    return start, min(end, characters, start + _LONGEST)
