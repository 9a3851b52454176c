"""Text and chunks of a stored document, for indexing and for readers of a version that is not indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.knowledge.document_chunks import plan_chunks
from weftline.knowledge.document_content import decompress

if TYPE_CHECKING:
    from weftline.indexing.chunking.reader import DocumentReader
    from weftline.knowledge.document_chunks import ChunkLayout
    from weftline.knowledge.model import Document, Domain


def lay_out(reader: DocumentReader, document: Document, domain: Domain, stored: bytes) -> ChunkLayout:
    """Read a document's stored content and compute its chunks; raises DocumentUnreadable. Slow: call it in a thread."""
    content = decompress(stored)
    reading = reader.read(content, document.media_type or None, document.document_id)
    return plan_chunks(document, domain, reading, content)
