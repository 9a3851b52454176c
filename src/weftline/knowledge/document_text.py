"""Text of a document in any state: the indexed version, or one that is not indexed, or not yet.

What is not indexed was not checked, or did not pass. Such a version is checked when it is read, like before indexing;
only humans who review the domain's documents read it unchecked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.knowledge.document_layout import lay_out
from weftline.knowledge.document_scan import blocked_reason, needs_review, scan_document
from weftline.knowledge.documents import Documents
from weftline.knowledge.model import (
    Document,
    DocumentNotReady,
    DocumentVersionNotFound,
    Domain,
)
from weftline.knowledge.sql import StoredContent
from weftline.safety.trust.policy import TrustPolicies, TrustPolicy

if TYPE_CHECKING:
    from weftline.indexing.chunking.reader import DocumentReader
    from weftline.knowledge.document_chunks import ChunkLayout
    from weftline.safety.trust.scanner import ContentScanner


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
