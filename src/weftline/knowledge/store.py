"""Storage ports of knowledge: domains and documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from weftline.knowledge.model import Document, DocumentState, Domain, Quarantine
    from weftline.knowledge.templates.model import DomainEvaluation
    from weftline.safety.trust.model import TrustLabel


class Backlog(NamedTuple):
    """Number of documents that wait for indexing, that failed, and that are held for review."""

    pending: int
    failed: int
    quarantined: int = 0


class IncompleteDocument(NamedTuple):
    """A document with chunks of an unfinished version; searches may use only those of ``found_version`` (0: none)."""

    document_id: str
    found_version: int


class StoredContent(NamedTuple):
    """Compressed content of a document, and its text if that differs."""

    content: bytes
    text: bytes | None


class QueuedDocument(NamedTuple):
    """A document that waits for indexing; ``attempts`` processes stopped while they indexed it."""

    domain: str
    document_id: str
    attempts: int = 0
    added_by: str = ""
    bytes: int = 0


class Requeued(NamedTuple):
    """Number of documents that wait for reindexing, and of their current chunks."""

    documents: int
    chunks: int


class LeasedDocument(NamedTuple):
    """A leased document, with the layout hash of the version being indexed; empty if none was written yet.

    ``attempts`` is the number of attempts that ended with their process and without progress; before this one if it
    was just claimed.
    """

    document: Document
    layout_hash: str
    attempts: int


class DomainStore(Protocol):
    """The domains of the transaction's tenant."""

    async def add(self, domain: Domain) -> bool:
        """Insert a domain; False if the name is in use or a domain with this name is still being deleted."""
        ...

    async def find(self, domain: str) -> Domain | None: ...

    async def find_shared(self, domain: str) -> Domain | None:
        """Return a domain with a shared lock, so that it is not changed or deleted until the transaction ends."""
        ...

    async def find_locked(self, domain: str) -> Domain | None:
        """Return a domain with a row lock, for changes of the domain or its counts."""
        ...

    async def all(self) -> Sequence[Domain]:
        """Return every domain, by name."""
        ...

    async def update(self, domain: Domain) -> None:
        """Update a domain, except for its counts."""
        ...

    async def count(self, domain: str, *, documents: int, size: int) -> None:
        """Add to the counts of documents and bytes."""
        ...

    async def content_changes(self, domain: str) -> int:
        """Return how often the documents of a domain, or how they are indexed, have changed."""
        ...

    async def set_evaluation(self, domain: str, evaluation: DomainEvaluation, changes: int) -> None:
        """Store what the example questions of a domain found, after this number of changes."""
        ...

    async def reindexing(self) -> Sequence[str]:
        """Return the domains with a running reindex."""
        ...

    async def set_reindexing(self, domain: str, after: str | None) -> None:
        """Set the cursor of a reindex; None when it is finished."""
        ...

    async def delete(self, domain: str) -> None:
        """Delete a domain with its documents, but not their chunks."""
        ...


class DocumentStore(Protocol):
    """Documents of the transaction's tenant, their content, and the indexing queue."""

    async def put(self, document: Document, content: bytes, now: int) -> None:
        """Store a document and its content, and queue it; a lease on the previous version ends."""
        ...

    async def find(self, domain: str, document_id: str) -> Document | None: ...

    async def find_all(self, domain: str, document_ids: Iterable[str]) -> Mapping[str, Document]:
        """Return those of the documents that exist, by id."""
        ...

    async def find_locked(self, domain: str, document_id: str) -> Document | None:
        """Return a document with a row lock."""
        ...

    async def page(self, domain: str, state: DocumentState | None, after: str, limit: int) -> Sequence[Document]:
        """Return documents with an id greater than ``after``, by id."""
        ...

    async def matching(self, domain: str, metadata: Mapping[str, object], media_types: Sequence[str]) -> Sequence[str]:
        """Return the ids of documents whose indexed version has this metadata and, if given, one of these types."""
        ...

    async def pinned_bytes(self, domain: str, except_document: str) -> int:
        """Return the bytes of the pinned documents of a domain other than this one."""
        ...

    async def backlog(self, domain: str) -> Backlog: ...

    async def incomplete(self, domain: str) -> Sequence[IncompleteDocument]:
        """Return the documents with chunks of an unfinished version."""
        ...

    async def content(self, domain: str, document_id: str, version: int) -> StoredContent | None:
        """Return the content of a version."""
        ...

    async def delete(self, domain: str, document_id: str) -> None:
        """Delete a document and its content, but not its chunks."""
        ...

    async def delete_content(self, domain: str, document_id: str, version: int) -> None:
        """Delete the content of one version."""
        ...

    async def queued(self, now: int, limit: int, sizes: range, not_of: Sequence[str] = ()) -> Sequence[QueuedDocument]:
        """Return queued documents of these sizes without a lease, oldest first; none that these participants added.

        After four attempts that ended with their process, a document rests before each further one.
        """
        ...

    async def claim(self, domain: str, document_id: str, holder: str, now: int, until: int) -> LeasedDocument | None:
        """Lease a document; None if it is leased or not queued.

        Counts as an attempt, unless the same holder had the last lease: then that process did not crash.
        """
        ...

    async def renew_lease(
        self, domain: str, document_id: str, version: int, holder: str, until: int
    ) -> LeasedDocument | None:
        """Extend a lease and return the document with a row lock; None if the lease is lost or it has changed."""
        ...

    async def end_lease(
        self, domain: str, document_id: str, holder: str, rests_until: int, *, interrupted: bool = False
    ) -> None:
        """End a lease; the document is not leased again before ``rests_until``.

        Its attempts are forgotten, unless this one was ``interrupted``.
        """
        ...

    async def advance(self, domain: str, document_id: str, *, done: int, total: int, layout_hash: str) -> None:
        """Store the indexing progress of a version."""
        ...

    async def finish(self, document: Document, text: bytes | None) -> None:
        """Make a version the indexed one, and delete the content of earlier versions."""
        ...

    async def fail(self, domain: str, document_id: str, reason: str) -> None:
        """Store that indexing a version failed."""
        ...

    async def quarantine(self, document: Document, quarantine: Quarantine) -> None:
        """Store that a version is held for review, and why."""
        ...

    async def unindex(self, domain: str, document_id: str) -> None:
        """Store that no version is indexed, but keep the content of the latest one."""
        ...

    async def release(self, document: Document, released_by: str, now: int) -> None:
        """Queue a version that was held, and note that exactly this content with these attributes may be indexed."""
        ...

    async def set_trust(self, domain: str, document_id: str, label: TrustLabel | None) -> None:
        """Set the label of a document."""
        ...

    async def requeue(self, domain: str, after: str, limit: int, now: int) -> str | None:
        """Queue the next documents after an id for reindexing, each as a new version; return the last id."""
        ...

    async def requeued(self, domain: str) -> Requeued:
        """Return what waits for reindexing, without documents that have new content."""
        ...

    async def count_after(self, domain: str, after: str) -> int:
        """Return the number of documents with an id greater than ``after``."""
        ...
