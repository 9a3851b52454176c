"""What knowledge needs of storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from weft.capabilities.knowledge.model import Document, Domain, State
    from weft.capabilities.knowledge.quotas import Plan


class Backlog(NamedTuple):
    """How many documents are still to be indexed, and how many could not be."""

    pending: int
    failed: int


class IncompleteDocument(NamedTuple):
    """A document of which there are chunks that are not to be found: all but those of one version (0: of none)."""

    document_id: str
    found_version: int


class StoredContent(NamedTuple):
    """What a document holds, packed; and its text where that is not the content itself."""

    content: bytes
    text: bytes | None


class QueuedDocument(NamedTuple):
    """A document that is to be indexed; it was taken up ``starts`` times without getting any further."""

    domain: str
    document_id: str
    starts: int = 0


class Requeued(NamedTuple):
    """How many documents wait to be indexed anew, and in how many chunks they are found now."""

    documents: int
    chunks: int


class LeasedDocument(NamedTuple):
    """A document in somebody's hands, and how the version at work was cut, empty if it was not yet.

    It was taken up ``starts`` times without getting any further, before this one if it was just claimed.
    """

    document: Document
    cut: str
    starts: int


class PlanStore(Protocol):
    """How much the transaction's tenant may have."""

    async def plan(self) -> Plan | None:
        """Return the plan that was agreed; None if none was."""
        ...

    async def set_plan(self, plan: Plan, now: int) -> None: ...


class DomainStore(Protocol):
    """The domains of the transaction's tenant."""

    async def add(self, domain: Domain) -> bool:
        """Add a domain; False if the name is taken, or what is left of one that had it is still to be deleted."""
        ...

    async def find(self, domain: str) -> Domain | None: ...

    async def held(self, domain: str) -> Domain | None:
        """Return a domain, which nobody changes or deletes until the transaction ends."""
        ...

    async def find_locked(self, domain: str) -> Domain | None:
        """Return a domain, before anyone else can change it or what it counts."""
        ...

    async def all(self) -> Sequence[Domain]:
        """Return every domain, by name."""
        ...

    async def update(self, domain: Domain) -> None:
        """Write down what a domain says of itself; what it counts stays as it is."""
        ...

    async def count(self, domain: str, *, documents: int, size: int) -> None:
        """Count so many documents and bytes more, or fewer."""
        ...

    async def reindexing(self) -> Sequence[str]:
        """Return the domains whose documents are being cut anew."""
        ...

    async def set_reindexing(self, domain: str, after: str | None) -> None:
        """Note which document was looked at last; None when all were."""
        ...

    async def delete(self, domain: str) -> None:
        """Remove a domain with all its documents, but not what searches find of them."""
        ...


class DocumentStore(Protocol):
    """The documents of the transaction's tenant, what they hold, and how far each is on its way to search."""

    async def put(self, document: Document, content: bytes, now: int) -> None:
        """Keep a document and what it holds, and have it indexed; whatever was under way for it before ends."""
        ...

    async def find(self, domain: str, document_id: str) -> Document | None: ...

    async def find_all(self, domain: str, document_ids: Iterable[str]) -> Mapping[str, Document]:
        """Return those of the documents that there are, by their ids."""
        ...

    async def find_locked(self, domain: str, document_id: str) -> Document | None:
        """Return a document, before anyone else can change it."""
        ...

    async def page(self, domain: str, state: State | None, after: str, limit: int) -> Sequence[Document]:
        """Return documents behind a name, by name."""
        ...

    async def matching(self, domain: str, metadata: Mapping[str, object], media_types: Sequence[str]) -> Sequence[str]:
        """Return the names of those whose metadata say all of this, and are of one of these types if any is named.

        What counts is what was said of the version that searches find.
        """
        ...

    async def backlog(self, domain: str) -> Backlog: ...

    async def unfinished(self, domain: str) -> Sequence[IncompleteDocument]:
        """Return the documents of which a version is being written, or was never finished."""
        ...

    async def kept(self, domain: str, document_id: str, version: int) -> StoredContent | None:
        """Return what a version holds."""
        ...

    async def delete(self, domain: str, document_id: str) -> None:
        """Remove a document with what it holds, but not what searches find of it."""
        ...

    async def waiting(self, now: int, limit: int) -> Sequence[QueuedDocument]:
        """Return what is to be indexed and in nobody's hands, longest waiting first."""
        ...

    async def claim(self, domain: str, document_id: str, holder: str, now: int, until: int) -> LeasedDocument | None:
        """Take a document in hand until a moment; None if another has it, or nothing is to be done.

        It counts as a start, unless the same holder had it last: whoever takes it again has not ended at it.
        """
        ...

    async def held(self, domain: str, document_id: str, version: int, holder: str, until: int) -> LeasedDocument | None:
        """Hold on to a document for longer, and return it locked; None if another has it, or it has changed."""
        ...

    async def release(self, domain: str, document_id: str, holder: str, rests_until: int) -> None:
        """Let go of a document; nobody takes it before ``rests_until``."""
        ...

    async def advance(self, domain: str, document_id: str, *, done: int, total: int, cut: str) -> None:
        """Note how many chunks of the version at work are there."""
        ...

    async def finish(self, document: Document, text: bytes | None) -> None:
        """Note that a version is the one that searches find, and forget what earlier ones held."""
        ...

    async def fail(self, domain: str, document_id: str, reason: str) -> None:
        """Note that a version cannot be indexed."""
        ...

    async def requeue(self, domain: str, after: str, limit: int, now: int) -> str | None:
        """Have the next documents behind a name indexed anew, each as a new version; return the last one's name."""
        ...

    async def requeued(self, domain: str) -> Requeued:
        """Return what waits to be indexed anew, other content aside."""
        ...

    async def count_behind(self, domain: str, after: str) -> int:
        """Return how many documents stand behind a name."""
        ...
