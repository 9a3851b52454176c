"""Text of a document in any state: the indexed version, or one that is not indexed, or not yet.

What is not indexed was not checked, or did not pass. Such a version is checked when it is read, like before indexing;
only humans who review the domain's documents read it unchecked.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.indexing.chunking.chunker import split_into_chunks
from weftline.indexing.collections import ChunkOwner, NewChunk, embedded_text
from weftline.indexing.entities import extract_entities, pack_entities
from weftline.kernel.ports import approximate_tokens
from weftline.knowledge.document_scan import blocked_reason, needs_review, scan_document
from weftline.knowledge.documents import Documents, compressed_text, decompress, storable_text
from weftline.knowledge.model import Document, DocumentNotReady, DocumentVersionNotFound, Domain
from weftline.knowledge.sql import StoredContent
from weftline.safety.trust.model import TrustPolicies, TrustPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.indexing.chunking.model import ParsedDocument, TextSpan
    from weftline.indexing.chunking.reader import DocumentReader
    from weftline.safety.trust.scanner import ContentScanner

    Terms = Callable[[str, str], str]


# Splits the text of a document into chunks for the search index.

_SEPARATOR = " > "
_MAX_TITLE = 200


class ChunkLayout(NamedTuple):
    """The text of a document and the spans of its chunks.

    ``layout_hash`` is a hash of text and spans. ``kept`` is the compressed text, None if it equals the content.
    ``size`` is the length of the text in bytes.
    """

    text: str
    title: str
    media_type: str
    pieces: Sequence[TextSpan]
    layout_hash: str
    kept: bytes | None
    size: int


def plan_chunks(document: Document, domain: Domain, reading: ParsedDocument, content: bytes) -> ChunkLayout:
    """Compute the chunks of a document. Run it in a thread: the text may be megabytes."""
    text = storable_text(reading.text)
    pieces = split_into_chunks(structs.replace(reading, text=text), domain.chunking, approximate_tokens)
    title = document.title or storable_text(" ".join(reading.title.split()))[:_MAX_TITLE]
    kept, size = compressed_text(text, content), len(text.encode())
    return ChunkLayout(text, title, reading.media_type, pieces, _fingerprint(text, pieces), kept, size)


def build_chunks(
    document: Document, domain: Domain, layout: ChunkLayout, span: range, terms_of: Terms
) -> list[NewChunk]:
    """Build the chunks of a document whose ordinals are in a range."""
    return [_chunk(document, domain, layout, ordinal, terms_of) for ordinal in span]


def _chunk(document: Document, domain: Domain, layout: ChunkLayout, ordinal: int, terms_of: Terms) -> NewChunk:
    piece = layout.pieces[ordinal]
    text = layout.text[piece.start : piece.end]
    heading, speaker = _heading(layout.title, storable_text(piece.heading)), storable_text(piece.speaker)
    timestamp = document.timestamp if piece.timestamp is None else piece.timestamp
    # Only a part with its own time, such as a turn, has a day that "today" can mean.
    entities = extract_entities(text, speaker=speaker, timestamp=piece.timestamp, is_code=piece.kind == "code")
    return NewChunk(
        source="document",
        place=document.domain,
        item=document.document_id,
        version=document.version,
        ordinal=ordinal,
        start=piece.start,
        end=piece.end,
        kind=piece.kind,
        heading=heading,
        speaker=speaker,
        timestamp=timestamp,
        tokens=piece.tokens,
        importance=domain.importance if document.importance is None else document.importance,
        pinned=document.pinned,
        metadata=document.metadata,
        terms=terms_of(text, heading),
        entities=pack_entities(entities),
        text=text,
        digest=ChunkOwner("document", document.domain, document.document_id).digest_of(embedded_text(heading, text)),
    )


def _heading(title: str, path: str) -> str:
    """Prepend the title to the heading path, unless the path begins with it."""
    if not title or path == title or path.startswith(title + _SEPARATOR):
        return path
    return f"{title}{_SEPARATOR}{path}" if path else title


def _fingerprint(text: str, pieces: Sequence[TextSpan]) -> str:
    places = ",".join(f"{piece.start}-{piece.end}" for piece in pieces)
    return hashlib.sha256(f"{places}\n{text}".encode()).hexdigest()


# Text and chunks of a stored document, for indexing and for readers of a version that is not indexed.


def lay_out(reader: DocumentReader, document: Document, domain: Domain, stored: bytes) -> ChunkLayout:
    """Read a document's stored content and compute its chunks; raises DocumentUnreadable. Slow: call it in a thread."""
    content = decompress(stored)
    reading = reader.read(content, document.media_type or None, document.document_id)
    return plan_chunks(document, domain, reading, content)


class ReadableDocument(NamedTuple):
    """A version of a document with its content; ``policy`` is given if it has to be checked before it is read."""

    document: Document
    domain: Domain
    version: int
    content: StoredContent
    policy: TrustPolicy | None = None

    @property
    def is_indexed(self) -> bool:
        return self.version == self.document.indexed_version


class DocumentTexts(msgspec.Struct, frozen=True):
    """Finds the content of documents that the caller can see."""

    documents: Documents
    policies: TrustPolicies

    async def find(self, domain: str, document_id: str, version: int | None) -> ReadableDocument:
        """Return the indexed or the latest version; by default the indexed one, if there is none the latest."""
        place = await self.documents.domains.find(domain)
        document = await self.documents.find(place, document_id)
        wanted = version or document.indexed_version or document.version
        is_indexed = wanted == document.indexed_version
        number = document.indexed_content if is_indexed else document.content_version
        kept = await self.documents.documents.content(domain, document_id, number)
        if kept is None or wanted not in {document.indexed_version, document.version}:
            raise DocumentVersionNotFound(
                f"Version {wanted} of '{document_id}' is not stored.",
                indexed_version=document.indexed_version,
                latest_version=document.version,
            )
        if is_indexed or await self.documents.domains.may_review(place):
            return ReadableDocument(document, place, wanted, kept)
        if document.state == "quarantined":
            raise _not_ready(document)
        return ReadableDocument(document, place, wanted, kept, await self.policies.current())


def checked_layout(stored: ReadableDocument, reader: DocumentReader, scanner: ContentScanner) -> ChunkLayout:
    """Return the text of a version that is not indexed; raises DocumentNotReady if the policy would not let it be.

    Slow: call it in a thread.
    """
    document, policy = stored.document, stored.policy
    layout = lay_out(reader, document, stored.domain, stored.content.content)
    if policy is not None:
        scan = scan_document(scanner, document, layout)
        if needs_review(policy, scan, document) or blocked_reason(policy, scan) is not None:
            raise _not_ready(document)
    return layout


def _not_ready(document: Document) -> DocumentNotReady:
    return DocumentNotReady(f"'{document.document_id}' may not be read before it is reviewed.", state=document.state)
