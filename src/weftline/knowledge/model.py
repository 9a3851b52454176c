"""Domains and documents, with their access rules."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from weftline.indexing.chunking.model import ChunkingOptions
from weftline.kernel.errors import Conflict, InvalidInput, NotFound, PermissionDenied, Rejected
from weftline.kernel.fields import Name
from weftline.kernel.identity import ANYONE, CLEARANCE, Permission, PrincipalKind
from weftline.kernel.operation import Audience, Effect, RateClass, SessionUse, operation
from weftline.knowledge.templates.model import DomainEvaluation, DomainTemplate
from weftline.safety.trust.model import TrustLabel

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.safety.trust.model import TrustPolicy

_knowledge_operation = partial(operation, tool="knowledge", rate=RateClass.KNOWLEDGE, session=SessionUse.NONE)
read_operation = partial(_knowledge_operation, permission=Permission.READ, effect=Effect.READ)
write_operation = partial(_knowledge_operation, permission=Permission.WRITE, effect=Effect.WRITE, audited=True)
admin_operation = partial(
    operation,
    tool="knowledge",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    session=SessionUse.NONE,
)
MAX_DOCUMENT_BYTES = 16 * 2**20
NEUTRAL_IMPORTANCE = 0.5
# Pinned documents are in the results of every search, so that not every writer may pin.
PINNING_CLEARANCE = 3

DocumentState = Literal["pending", "indexed", "failed", "quarantined"]

DomainName = Annotated[
    Name,
    msgspec.Meta(
        description="Name of the domain: letters, digits, _ and -.", extra_json_schema={"examples": ["handbook"]}
    ),
]
DocumentId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=500,
        pattern=r"^[^\x00-\x1f\x7f]+\Z",
        description="Id of the document in its domain: a name or a relative path such as guides/start.md.",
    ),
]
Importance = Annotated[float, msgspec.Meta(ge=0, le=1)]
MediaType = Annotated[
    str,
    msgspec.Meta(
        max_length=100,
        pattern=r"^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+(; ?[A-Za-z0-9-]+=[A-Za-z0-9._-]+)*\Z",
        description="Media type, such as text/markdown; default: detected from id and content.",
    ),
]


class DomainNotFound(NotFound):
    """The domain does not exist, or you cannot see it."""

    code = "DOMAIN_NOT_FOUND"
    hint = "List the domains you can see with `knowledge.list_domains`, or create it with `knowledge.create_domain`."
    related = ("knowledge",)


class DomainExists(Conflict):
    """A domain with this name already exists."""

    code = "DOMAIN_EXISTS"
    hint = "Choose another name, or change the existing domain with `knowledge.update_domain`."
    related = ("knowledge",)


class DocumentNotFound(NotFound):
    """The document does not exist in the domain."""

    code = "DOCUMENT_NOT_FOUND"
    hint = "List the documents with `knowledge.list_documents`."
    related = ("knowledge",)


class DocumentVersionNotFound(NotFound):
    """This version of the document is not stored."""

    code = "DOCUMENT_VERSION_NOT_FOUND"
    hint = "Omit version to read the indexed one; only this and the latest version are stored."
    related = ("knowledge",)


class DocumentNotReady(Conflict):
    """The document is held for review, or the tenant's policy forbids what it contains."""

    code = "DOCUMENT_NOT_READY"
    hint = "See its state and error with `knowledge.get_document`; humans who may write to the domain can read it."
    related = ("knowledge",)


class DocumentNotQuarantined(Conflict):
    """This version of the document is not in quarantine."""

    code = "DOCUMENT_NOT_QUARANTINED"
    hint = "See its state and version with `knowledge.get_document`; a newer version is checked again."
    related = ("knowledge",)


class DocumentTooLarge(Rejected):
    """The document exceeds the size limit."""

    code = "DOCUMENT_TOO_LARGE"
    hint = "Split it into several documents, such as handbook/part-1.md."
    http_status = 413
    related = ("knowledge",)


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """A set of documents with common access rules, chunking and importance.

    ``reindex_after`` is the cursor of a running reindex: the last document queued, None if none is running.
    ``reembed`` makes it embed all texts again. ``template`` is a copy of the template it was created from, and
    ``evaluation`` what the example questions of it found last.
    """

    domain: str
    description: str
    clearance: int
    created_by: str
    created_at: int
    updated_at: int
    agents: tuple[str, ...] = ANYONE
    writers: tuple[str, ...] = ANYONE
    chunking: ChunkingOptions = ChunkingOptions()
    importance: float = NEUTRAL_IMPORTANCE
    documents: int = 0
    bytes: int = 0
    reindex_after: str | None = None
    reembed: bool = False
    template: DomainTemplate | None = None
    evaluation: DomainEvaluation | None = None

    @property
    def cleared(self) -> tuple[str, ...]:
        """Return the read ACL for its clearance."""
        return (f"{CLEARANCE}{self.clearance}",)


def can_see(domain: Domain, actor: Actor) -> bool:
    """Whether a caller can see a domain: by clearance, and by its agents or as admin."""
    return actor.clearance >= domain.clearance and (actor.is_admin or actor.matches(domain.agents))


def check_may_write(domain: Domain, actor: Actor) -> None:
    """Raise PermissionDenied unless the caller is a writer of the domain or an admin."""
    if not (actor.is_admin or actor.matches(domain.writers)):
        raise PermissionDenied(
            "You can read this domain, but not write to it.",
            hint="Ask one of its writers (see `knowledge.show_domain`), or ask an admin to add you to them.",
        )


def may_review(domain: Domain, actor: Actor, policy: TrustPolicy) -> bool:
    """Whether a caller may see what is held: humans who may release it. The passages address agents.

    Domains have all members as writers by default, so writing to one is not enough.
    """
    is_writer = Permission.WRITE in actor.permissions and actor.matches(domain.writers)
    is_reviewer = is_writer and actor.clearance >= policy.approver_clearance
    return actor.kind is PrincipalKind.HUMAN and (actor.is_admin or is_reviewer)


def check_may_pin(actor: Actor) -> None:
    """Raise PermissionDenied unless the caller may pin documents."""
    if not (actor.is_admin or actor.clearance >= PINNING_CLEARANCE):
        raise PermissionDenied(
            f"Pinning a document needs clearance {PINNING_CLEARANCE} or the permission 'admin'.",
            hint="Add it without pinned, or ask someone with the clearance to pin it.",
            required_clearance=PINNING_CLEARANCE,
            your_clearance=actor.clearance,
        )


class FlaggedPassage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A passage that looks like an instruction to agents: where it is, the most suspicious words."""

    start: int
    end: int
    score: float
    excerpt: str


class Quarantine(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a version is held: the most suspicious of its ``flagged`` passages, and the approval that decides."""

    flagged: int
    passages: tuple[FlaggedPassage, ...]
    at: int
    approval_id: str | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The latest version of a document, and the version that is indexed.

    ``version`` increases with every put and every reindex; ``content_version`` is the version that last changed the
    content. ``indexed_version`` is the one searches find (0: none), with ``chunks`` chunks of ``text_bytes`` of text.
    Of the version being indexed, ``chunks_done`` of ``chunks_total`` are written. ``digest`` is the SHA-256 of the
    content, ``fingerprint`` that of content and attributes. ``trust`` is the label of the indexed version,
    ``quarantine`` why the latest one is held. ``released`` is the fingerprint that a human released from quarantine.
    """

    domain: str
    document_id: str
    version: int
    content_version: int
    digest: str
    fingerprint: str
    bytes: int
    media_type: str
    title: str
    metadata: str
    pinned: bool
    importance: float | None
    timestamp: int
    added_by: str
    created_at: int
    updated_at: int
    state: DocumentState = "pending"
    indexed_version: int = 0
    indexed_content: int = 0
    indexed_at: int | None = None
    indexed_title: str = ""
    indexed_type: str = ""
    text_bytes: int = 0
    chunks: int = 0
    chunks_done: int = 0
    chunks_total: int | None = None
    error: str | None = None
    trust: TrustLabel | None = None
    quarantine: Quarantine | None = None
    released: str | None = None
    released_by: str | None = None

    @property
    def is_released(self) -> bool:
        """Whether a human released exactly this content and these attributes from quarantine."""
        return self.released == self.fingerprint

    @property
    def is_reindexed(self) -> bool:
        """Whether the latest version is a reindex of the same content."""
        return self.version > self.content_version

    @property
    def counted(self) -> int:
        """Return the bytes that count towards the quota: compressed content can have a long text."""
        return max(self.bytes, self.text_bytes)


def is_document_id(text: str) -> bool:
    """Return whether a text is a name or a relative path without traversal."""
    return not text.startswith("/") and {".", ".."}.isdisjoint(text.split("/"))


def check_document_id(document_id: str) -> None:
    if not is_document_id(document_id):
        raise InvalidInput("document_id: must be a name or a relative path without . and ..", field="document_id")


def check_chunking(chunking: ChunkingOptions) -> None:
    """Reject an overlap that is as long as a chunk."""
    if chunking.overlap_tokens >= chunking.chunk_tokens:
        raise InvalidInput("chunking: overlap_tokens must be below chunk_tokens.", field="chunking")
