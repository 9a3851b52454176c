"""Sources of knowledge: folders, URLs and hooks that documents come from."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from weftline.kernel.errors import Conflict, InvalidInput, NotFound, Rejected
from weftline.kernel.identity import ANYONE, PERMISSION, Permission

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.kernel.identity import Actor


# Sources of knowledge: their files, their schedule and the names of their documents.

MAX_SOURCES = 100
# Limits of a folder, included files or not, so that nobody lists a whole disk.
MAX_FOLDER_ENTRIES = 100_000
MAX_FOLDER_DEPTH = 64
# Failures reported individually: as many as one hook call can cause.
MAX_REPORTED_FAILURES = 100
MIN_INTERVAL_SECONDS = 60
SECOND = 1_000_000
ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)
_TOKEN_BYTES = 32
_MAX_NAME_LENGTH = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Exponential backoff of a watched source after a failed sync.
_RETRY_SECONDS = 60
_MAX_DOUBLINGS = 6
# Requested syncs; a full one reads unchanged files again.
SYNC_REQUESTED, FULL_SYNC_REQUESTED = 1, 2

SourceKind = Literal["folder", "url", "hook"]

SourceId = Annotated[str, msgspec.Meta(pattern=r"^source_[0-9a-f]{16}\Z", description="Id of the source.")]
Globs = Annotated[tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=200)], ...], msgspec.Meta(max_length=50)]


class SourceNotFound(NotFound):
    """The source does not exist in the domain."""

    code = "SOURCE_NOT_FOUND"
    hint = "List the sources with `knowledge.list_sources`."
    related = ("knowledge",)


class TooManySources(Conflict):
    """The tenant has the maximum number of sources."""

    code = "TOO_MANY_SOURCES"
    hint = "Remove an unused source, or put several documents into one folder."
    related = ("knowledge",)


class SourcesOverlap(Conflict):
    """Another source of the domain could create documents with the same ids."""

    code = "SOURCES_OVERLAP"
    hint = "Choose a prefix that is not a prefix of the other source's, and the other way round; or remove that source."
    related = ("knowledge",)


class FolderRefused(Rejected):
    """This folder is not allowed."""

    code = "FOLDER_REFUSED"
    hint = "Choose a folder inside one of those that the operator listed in WEFTLINE_KNOWLEDGE_FOLDERS."
    related = ("knowledge",)


class HookRefused(NotFound):
    """The hook does not exist, or the signature of the call is invalid."""

    code = "HOOK_REFUSED"
    hint = "Use the URL from `knowledge.add_source`, sign the body with the source's secret, and send the current time."


class RejectedDocument(msgspec.Struct, frozen=True):
    """A document of a source that could not be put, with the reason."""

    document_id: str
    reason: str


class SyncCounts(msgspec.Struct, frozen=True):
    """Result of a sync; ``failures`` are the first of the failed documents."""

    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    failed: int = 0
    failures: tuple[RejectedDocument, ...] = ()

    @property
    def changed(self) -> int:
        return self.added + self.updated + self.removed

    @property
    def figures(self) -> dict[str, int]:
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "failures"}

    def __add__(self, other: SyncCounts) -> SyncCounts:
        summed = {name: value + other.figures[name] for name, value in self.figures.items()}
        return SyncCounts(**summed, failures=(*self.failures, *other.failures)[:MAX_REPORTED_FAILURES])


class KnowledgeSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source of documents of a domain. ``location`` is a folder or a URL; a hook has none.

    ``error`` is why the last sync failed, or why the source was disabled. ``failures`` is the number of consecutive
    syncs that failed, completely or in part. ``validator`` detects changes: a hash of the folder listing, or the HTTP
    validators of a URL.
    """

    source_id: str
    domain: str
    kind: SourceKind
    location: str
    prefix: str
    include: tuple[str, ...] = ANYONE
    exclude: tuple[str, ...] = ()
    every_seconds: int | None = None
    watch: bool = False
    secret: str
    token_digest: str
    principal_id: str
    created_at: int
    enabled: bool = True
    error: str | None = None
    requested: int = 0
    due_at: int | None = None
    synced_at: int | None = None
    failures: int = 0
    validator: str = ""
    last_sync: SyncCounts = SyncCounts()

    def __repr__(self) -> str:
        return f"Source({self.source_id!r})"

    @property
    def shown_location(self) -> str:
        """Return the location without the query of a URL, which may contain a secret."""
        if self.kind != "url":
            return self.location
        parts = urlsplit(self.location)
        return f"{parts.scheme}://{parts.netloc}{parts.path}{'?...' if parts.query else ''}"

    def is_due(self, now: int) -> bool:
        return self.enabled and self.kind != "hook" and (bool(self.requested) or (self.due_at or now + 1) <= now)

    def next_due(self, now: int) -> int | None:
        """Return the time of the next sync after one that ended now."""
        every = self.every_seconds
        if self.failures and self.watch:
            backoff = _RETRY_SECONDS * 2 ** min(self.failures - 1, _MAX_DOUBLINGS)
            every = min(every or backoff, backoff)
        return None if every is None else now + every * SECOND


class SourceFile(NamedTuple):
    """A file in a folder; ``changed_at`` is its modification time in nanoseconds."""

    path: str
    size: int
    changed_at: int


class SyncedFile(msgspec.Struct, frozen=True):
    """A file that was read, to detect whether it has changed.

    ``digest`` is that of the document that was put, empty if none was; it identifies the source's own document.
    """

    document_id: str
    size: int
    changed_at: int
    digest: str
    error: str | None = None


def is_included(path: str, include: Iterable[str], exclude: Iterable[str]) -> bool:
    """Whether a file becomes a document. A pattern matches the whole path, and ``*`` also matches slashes.

    A pattern without a slash matches the file name alone.
    """
    name = path.rpartition("/")[2]

    def matches(pattern: str) -> bool:
        return fnmatchcase(path if "/" in pattern else name, pattern)

    return any(map(matches, include)) and not any(map(matches, exclude))


def is_excluded_folder(folder: str, exclude: Iterable[str]) -> bool:
    """Whether all files of a folder are excluded, so that it need not be listed."""
    return any(pattern.endswith("/*") and fnmatchcase(f"{folder}/", pattern) for pattern in exclude)


def listing_fingerprint(files: Sequence[SourceFile]) -> str:
    """Return a hash of a folder listing, which changes if a file is added, removed or written."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.size}\0{file.changed_at}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def document_id_of_url(url: str) -> str:
    """Return the default document id of a URL."""
    parts = urlsplit(url)
    path = "/".join(part for part in parts.path.split("/") if part not in {"", ".", ".."})
    return "/".join(filter(None, (parts.hostname or "", path)))[:500]


def document_id_of_file(source: KnowledgeSource, path: str) -> str:
    """Return the document id of a file; bytes that are not UTF-8 are escaped."""
    name = f"{source.prefix}{path}".encode("utf-8", "backslashreplace").decode()
    return name.replace("\x00", "")


def check_document_name(name: str) -> None:
    """Reject an invalid document id."""
    if len(name) > _MAX_NAME_LENGTH or _CONTROL.search(name):
        raise InvalidInput(
            f"document_id: at most {_MAX_NAME_LENGTH} characters with the source's prefix, no control characters.",
            field="document_id",
        )


def check_prefix(prefix: str) -> None:
    """Reject absolute paths and path traversal."""
    if prefix.startswith("/") or {".", ".."} & set(prefix.split("/")):
        raise InvalidInput("prefix: must be the beginning of a relative path, such as handbook/", field="prefix")


def names_overlap(one: KnowledgeSource, other: KnowledgeSource) -> bool:
    """Whether two sources could create the same document id. A URL has one document, whose id is the prefix."""
    shorter, longer = sorted((one, other), key=lambda source: len(source.prefix))
    if shorter.kind == "url":
        return shorter.prefix == longer.prefix
    return longer.prefix.startswith(shorter.prefix)


def new_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def token_digest(token: str) -> str:
    """Return the digest of a token; the token itself is not stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_token_of(source: KnowledgeSource, token: str) -> bool:
    return hmac.compare_digest(source.token_digest, token_digest(token))


# Ports of knowledge sources: folders, HTTP and the sync job.


class FetchResult(NamedTuple):
    """Result of a fetch: new content, not modified (``content`` is None), ``gone``, or ``error``.

    ``validator`` makes the next fetch conditional.
    """

    content: bytes | None = None
    media_type: str | None = None
    validator: str = ""
    gone: bool = False
    error: str | None = None


class SourceControl(Protocol):
    """Controls the sync job: checks locations and starts requested syncs."""

    async def check(self, actor: Actor, kind: SourceKind, location: str) -> None:
        """Raise an error unless the location may be read."""
        ...

    def wake(self) -> None:
        """Wake the job, to run requested syncs."""
        ...
