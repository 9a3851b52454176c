"""Operations that list, show, read and delete documents."""

from __future__ import annotations

from typing import Annotated

import msgspec

from weftline.indexing.chunking.reader import DocumentReader, DocumentUnreadable
from weftline.kernel.errors import InvalidInput, invalid_cursor
from weftline.kernel.fields import Count, Ordinal
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Effect, Request, Response
from weftline.kernel.ports import Transactions
from weftline.kernel.thread_pools import DOCUMENT_THREADS, SHORT_THREADS
from weftline.knowledge.document_text import DocumentTexts, ReadableDocument, checked_layout
from weftline.knowledge.documents import DocumentInfo, Documents, decode_text, document_info
from weftline.knowledge.model import (
    DocumentId,
    DocumentNotFound,
    DocumentNotReady,
    DocumentState,
    DocumentVersionNotFound,
    DomainName,
    DomainNotFound,
    is_document_id,
    read_operation,
    write_operation,
)
from weftline.safety.trust.scanner import ContentScanner

_MAX_CHARACTERS = 100_000


class ListDocuments(Request):
    """Filter and page of a list of documents."""

    domain: DomainName
    state: Annotated[DocumentState | None, msgspec.Meta(description="Only documents in this state.")] = None
    cursor: Annotated[DocumentId | None, msgspec.Meta(description="next_cursor of the previous page.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="Maximum number of results.")] = 100


class GetDocument(Request):
    """A document."""

    domain: DomainName
    document_id: DocumentId


class ReadDocument(Request):
    """A range of a document, in characters, like the offsets of chunks and search results."""

    domain: DomainName
    document_id: DocumentId
    start: Annotated[Count, msgspec.Meta(description="First character.")] = 0
    end: Annotated[
        Count | None, msgspec.Meta(description="End of the range, exclusive; at most 100,000 characters are returned.")
    ] = None
    version: Annotated[
        Ordinal | None,
        msgspec.Meta(description="Indexed or latest version; default: the indexed one, if there is none the latest."),
    ] = None


class DeleteDocument(Request):
    """A document to delete."""

    domain: DomainName
    document_id: DocumentId


class DocumentList(Response, omit_defaults=False):
    """Documents, by id."""

    documents: list[DocumentInfo]
    has_more: bool
    next_cursor: str | None


class DocumentText(Response, omit_defaults=False):
    """A range of a document's text. ``characters`` is its total length; ``next_start`` is set if there is more.

    ``state`` is that of this version: searches find it if it is ``indexed``.
    """

    domain: str
    document_id: str
    version: int
    state: DocumentState
    title: str
    media_type: str
    text: str
    start: int
    end: int
    characters: int
    next_start: int | None


class DocumentDeleted(Response):
    """The deleted document."""

    domain: str
    document_id: str


@read_operation(
    "knowledge.list_documents",
    action="list_documents",
    http="GET /v1/domains/{domain}/documents",
    errors=(DomainNotFound,),
)
async def list_documents(request: ListDocuments, documents: Documents) -> DocumentList:
    """List the documents of a domain, by id, with their indexing state."""
    if request.cursor is not None and not is_document_id(request.cursor):
        raise invalid_cursor("cursor")
    domain = await documents.domains.find(request.domain)
    found = await documents.documents.page(domain.domain, request.state, request.cursor or "", request.limit + 1)
    shown, has_more = found[: request.limit], len(found) > request.limit
    actor, reviews = documents.domains.actor, await documents.domains.may_review(domain)
    return DocumentList(
        documents=[document_info(document, actor, reviews=reviews) for document in shown],
        has_more=has_more,
        next_cursor=shown[-1].document_id if has_more else None,
    )


@read_operation(
    "knowledge.get_document",
    action="get_document",
    http="GET /v1/domains/{domain}/document",
    errors=(DomainNotFound, DocumentNotFound),
)
async def get_document(request: GetDocument, documents: Documents) -> DocumentInfo:
    """Show a document: its state, versions and chunks, and the error if indexing failed."""
    domain = await documents.domains.find(request.domain)
    found, reviews = await documents.find(domain, request.document_id), await documents.domains.may_review(domain)
    return document_info(found, documents.domains.actor, reviews=reviews)


@read_operation(
    "knowledge.read_document",
    action="read_document",
    http="GET /v1/domains/{domain}/document/text",
    effect=Effect.OWN_TRANSACTIONS,
    errors=(DomainNotFound, DocumentNotFound, DocumentNotReady, DocumentUnreadable, DocumentVersionNotFound),
)
async def read_document(
    request: ReadDocument,
    actor: Actor,
    texts: Transactions[DocumentTexts],
    reader: DocumentReader,
    scanner: ContentScanner,
) -> DocumentText:
    """Read the text of a document, or a range of it, such as the range of a search result.

    A version that is not indexed, or not yet, can be read too. It is checked first, like before indexing.
    """
    name = request.domain, request.document_id
    stored = await texts.read(actor, lambda tx: tx.find(*name, request.version), heavy=True)
    return await (_indexed(request, stored) if stored.is_indexed else _unindexed(request, stored, reader, scanner))


async def _indexed(request: ReadDocument, stored: ReadableDocument) -> DocumentText:
    document = stored.document
    text = await SHORT_THREADS.run(decode_text, *stored.content)
    return _shown(request, stored, text, document.indexed_title, document.indexed_type)


async def _unindexed(
    request: ReadDocument, stored: ReadableDocument, reader: DocumentReader, scanner: ContentScanner
) -> DocumentText:
    layout = await DOCUMENT_THREADS.run(checked_layout, stored, reader, scanner)
    return _shown(request, stored, layout.text, layout.title, layout.media_type)


def _shown(request: ReadDocument, stored: ReadableDocument, text: str, title: str, media_type: str) -> DocumentText:
    start, end = _span(request, len(text))
    return DocumentText(
        domain=stored.document.domain,
        document_id=stored.document.document_id,
        version=stored.version,
        state="indexed" if stored.is_indexed else stored.document.state,
        title=title,
        media_type=media_type,
        text=text[start:end],
        start=start,
        end=end,
        characters=len(text),
        next_start=end if end < len(text) else None,
    )


@write_operation(
    "knowledge.delete_document",
    action="delete_document",
    http="DELETE /v1/domains/{domain}/document",
    destructive=True,
    errors=(DomainNotFound, DocumentNotFound),
)
async def delete_document(request: DeleteDocument, documents: Documents) -> DocumentDeleted:
    """Delete a document. Searches no longer find it."""
    document = await documents.remove(request.domain, request.document_id)
    return DocumentDeleted(domain=document.domain, document_id=document.document_id)


def _span(request: ReadDocument, characters: int) -> tuple[int, int]:
    if request.end is not None and request.end < request.start:
        raise InvalidInput("end: before start", field="end")
    start = min(request.start, characters)
    end = characters if request.end is None else request.end
    return start, min(end, characters, start + _MAX_CHARACTERS)
