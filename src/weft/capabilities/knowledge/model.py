"""What a domain of knowledge is and who may look into it; what a document is, and when it can be found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from weft.capabilities.indexing.chunking.model import ChunkingOptions
from weft.kernel.errors import Conflict, InvalidInput, NotFound, PermissionDenied, Rejected
from weft.kernel.fields import Name
from weft.kernel.identity import ANYONE, CLEARANCE

if TYPE_CHECKING:
    from weft.kernel.identity import Actor

LARGEST_DOCUMENT_BYTES = 16 * 2**20
NEUTRAL_IMPORTANCE = 0.5
# What is pinned comes with every search of everyone: not for any writer to decide.
PINNING_CLEARANCE = 3

State = Literal["pending", "indexed", "failed"]

DomainName = Annotated[
    Name,
    msgspec.Meta(
        description="The domain's name: letters, digits, _ and -.", extra_json_schema={"examples": ["handbook"]}
    ),
]
DocumentId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=500,
        pattern=r"^[^\x00-\x1f\x7f]+\Z",
        description="What the document is called in its domain: a name, or a relative path such as guides/start.md.",
    ),
]
Importance = Annotated[float, msgspec.Meta(ge=0, le=1)]
MediaType = Annotated[
    str,
    msgspec.Meta(
        max_length=100,
        pattern=r"^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+(; ?[A-Za-z0-9-]+=[A-Za-z0-9._-]+)*\Z",
        description="What kind of document it is, such as text/markdown; told by its name and content if left out.",
    ),
]


class DomainNotFound(NotFound):
    """There is no such domain, or not for this caller."""

    code = "DOMAIN_NOT_FOUND"
    hint = "See the domains you may look into with `knowledge.list_domains`."
    related = ("knowledge",)


class DomainExists(Conflict):
    """A domain with this name exists already."""

    code = "DOMAIN_EXISTS"
    hint = "Choose another name, or change the domain there is with `knowledge.update_domain`."
    related = ("knowledge",)


class DocumentNotFound(NotFound):
    """There is no such document in the domain."""

    code = "DOCUMENT_NOT_FOUND"
    hint = "See the documents there are with `knowledge.list_documents`."
    related = ("knowledge",)


class DocumentVersionNotFound(NotFound):
    """This version of the document is not kept."""

    code = "DOCUMENT_VERSION_NOT_FOUND"
    hint = "Leave the version out to read the one that searches find; older versions are not kept."
    related = ("knowledge",)


class DocumentNotReady(Conflict):
    """The document has not been turned into text yet."""

    code = "DOCUMENT_NOT_READY"
    hint = "Ask again once `knowledge.get_document` shows it as indexed; if it failed, it says why."
    related = ("knowledge",)


class DocumentTooLarge(Rejected):
    """The document is larger than Weft takes."""

    code = "DOCUMENT_TOO_LARGE"
    hint = "Put it in parts, each a document of its own, such as handbook/part-1.md."
    http_status = 413
    related = ("knowledge",)


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """A place of knowledge: who may look into it, who of those may write, how its documents are cut and weighed.

    ``reindex_after`` is the last document that was looked at by a reindexing that is under way, which embeds everything
    anew if it is ``afresh``.
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
    reindex_afresh: bool = False

    @property
    def cleared(self) -> tuple[str, ...]:
        """Return the pattern of those who are cleared for it."""
        return (f"{CLEARANCE}{self.clearance}",)


def may_look_into(domain: Domain, actor: Actor) -> bool:
    """Tell whether a domain exists for a caller: it is cleared for it, and meant by it or an admin."""
    return actor.clearance >= domain.clearance and (actor.is_admin or actor.matches(domain.agents))


def check_may_write(domain: Domain, actor: Actor) -> None:
    """Refuse whoever may look into a domain but not write to it; an admin always may."""
    if not (actor.is_admin or actor.matches(domain.writers)):
        raise PermissionDenied(
            "You may look into this domain, but not write to it.",
            hint="Ask one of its writers (see `knowledge.show_domain`), or ask an admin to add you to them.",
        )


def check_may_pin(actor: Actor) -> None:
    """Refuse to let just anyone decide what comes with every search."""
    if not (actor.is_admin or actor.clearance >= PINNING_CLEARANCE):
        raise PermissionDenied(
            f"To pin a document needs clearance {PINNING_CLEARANCE} or the permission 'admin'.",
            hint="Put it without pinned, or leave that to someone who may pin.",
            required_clearance=PINNING_CLEARANCE,
            your_clearance=actor.clearance,
        )


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it was put last, and what searches find of it.

    ``version`` rises with whatever is put and with each new chunking; ``content_version`` is the version that brought
    its content. ``indexed_version`` is the one that searches find, 0 while there is none, of ``chunks`` chunks, made of
    ``text_bytes`` of text; ``chunks_done`` of ``chunks_total`` are there of the one at work. Digest is the SHA-256 of
    the content, fingerprint that of everything that was put.
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
    state: State = "pending"
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

    @property
    def is_reindexed(self) -> bool:
        """Tell whether its last version brought no other content."""
        return self.version > self.content_version

    @property
    def counted(self) -> int:
        """Return how many bytes it counts for: a short content can stand for a long text."""
        return max(self.bytes, self.text_bytes)


def check_document_id(document_id: str) -> None:
    """Refuse what reads like a path to somewhere else."""
    parts = document_id.split("/")
    if document_id.startswith("/") or "." in parts or ".." in parts:
        raise InvalidInput(
            "document_id: give a name or a relative path, without . and .. as parts of it.", field="document_id"
        )


def check_chunking(chunking: ChunkingOptions) -> None:
    """Refuse chunks that would repeat each other wholly."""
    if chunking.overlap_tokens >= chunking.chunk_tokens:
        raise InvalidInput("chunking: overlap_tokens must be below chunk_tokens.", field="chunking")
