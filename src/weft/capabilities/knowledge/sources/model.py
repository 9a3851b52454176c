"""What a source of knowledge is, which of its files are wanted, and when it is to be looked at again."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from weft.kernel.errors import Conflict, InvalidInput, NotFound, Rejected
from weft.kernel.identity import ANYONE, PERMISSION, Permission

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_SOURCES = 100
# A folder with more in it, wanted or not, is not one for a domain; nobody should wait for the listing of a whole disk.
MOST_ENTRIES = 100_000
MOST_LEVELS = 64
# So many failures are told one by one: all that one call to a hook can bring about.
MOST_FAILURES = 100
LEAST_SECONDS = 60
SECOND = 1_000_000
ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)
_TOKEN_BYTES = 32
_LONGEST_NAME = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# What could not be looked at is looked at again after so long, where somebody watches; after twice as long each time
# that it fails once more, up to so many times.
_RETRY_SECONDS = 60
_MOST_DOUBLINGS = 6
# How a source is asked for: to be looked at, or to be read anew as well, as if nothing were known of it.
ASKED, ASKED_ANEW = 1, 2

Kind = Literal["folder", "url", "hook"]

SourceId = Annotated[str, msgspec.Meta(pattern=r"^source_[0-9a-f]{16}\Z", description="As list_sources shows it.")]
Globs = Annotated[tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=200)], ...], msgspec.Meta(max_length=50)]


class SourceNotFound(NotFound):
    """There is no such source in the domain."""

    code = "SOURCE_NOT_FOUND"
    hint = "See the sources there are with `knowledge.list_sources`."
    related = ("knowledge",)


class TooManySources(Conflict):
    """The tenant has as many sources as it may have."""

    code = "TOO_MANY_SOURCES"
    hint = "Remove one that is no longer needed; one folder can hold many documents."
    related = ("knowledge",)


class SourcesOverlap(Conflict):
    """Another source of the domain could give a document the same name."""

    code = "SOURCES_OVERLAP"
    hint = "Choose a prefix that neither begins the other source's prefix nor is begun by it, or remove that source."
    related = ("knowledge",)


class FolderRefused(Rejected):
    """Weft does not read this folder."""

    code = "FOLDER_REFUSED"
    hint = "Name a folder inside one that whoever runs Weft has listed in WEFT_KNOWLEDGE_FOLDERS."
    related = ("knowledge",)


class HookRefused(NotFound):
    """There is no such hook, or the call is not signed as it must be."""

    code = "HOOK_REFUSED"
    hint = "Use the URL from `knowledge.add_source`, sign the body with the source's secret, and send the current time."


class NotTaken(msgspec.Struct, frozen=True):
    """A document that a source could not put, and why."""

    document_id: str
    reason: str


class Synced(msgspec.Struct, frozen=True):
    """What the last look at a source changed; ``failures`` are the first of those that failed."""

    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    failed: int = 0
    failures: tuple[NotTaken, ...] = ()

    @property
    def changed(self) -> int:
        return self.added + self.updated + self.removed

    @property
    def figures(self) -> dict[str, int]:
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "failures"}

    def __add__(self, other: Synced) -> Synced:
        summed = {name: value + other.figures[name] for name, value in self.figures.items()}
        return Synced(**summed, failures=(*self.failures, *other.failures)[:MOST_FAILURES])


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where documents of a domain come from. ``location`` is a folder or an address; a hook has none.

    ``error`` is why the last look failed; a source that is not enabled says why it was stopped there. ``failures`` is
    how many looks in a row failed, or could not take everything. ``seen`` is what it looked like when it was last
    looked at as a whole.
    """

    source_id: str
    domain: str
    kind: Kind
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
    asked: int = 0
    due_at: int | None = None
    synced_at: int | None = None
    failures: int = 0
    seen: str = ""
    done: Synced = Synced()

    def __repr__(self) -> str:
        return f"Source({self.source_id!r})"

    @property
    def shown_location(self) -> str:
        """Return enough of the place to know it by: the query of an address may be as good as a secret."""
        if self.kind != "url":
            return self.location
        parts = urlsplit(self.location)
        return f"{parts.scheme}://{parts.netloc}{parts.path}{'?...' if parts.query else ''}"

    def is_due(self, now: int) -> bool:
        return self.enabled and self.kind != "hook" and (bool(self.asked) or (self.due_at or now + 1) <= now)

    def next_due(self, now: int) -> int | None:
        """Return when a source that was looked at just now is to be looked at again."""
        every = self.every_seconds
        if self.failures and self.watch:
            pause = _RETRY_SECONDS * 2 ** min(self.failures - 1, _MOST_DOUBLINGS)
            every = min(every or pause, pause)
        return None if every is None else now + every * SECOND


class File(NamedTuple):
    """A file of a source as it is listed; ``changed_at`` is when it was last written, in nanoseconds."""

    path: str
    size: int
    changed_at: int


class KnownFile(msgspec.Struct, frozen=True):
    """What is known of a file that was read: enough to tell whether it must be read again.

    ``digest`` is that of what was last put of it, empty if nothing was: by it a source knows a document for its own.
    """

    document_id: str
    size: int
    changed_at: int
    digest: str
    error: str | None = None


def is_wanted(path: str, include: Iterable[str], exclude: Iterable[str]) -> bool:
    """Tell whether a file is to become a document. A pattern is of the whole path, ``*`` also of several folders.

    A pattern without a slash is of the name alone.
    """
    name = path.rpartition("/")[2]

    def matches(pattern: str) -> bool:
        return fnmatchcase(path if "/" in pattern else name, pattern)

    return any(map(matches, include)) and not any(map(matches, exclude))


def is_left_out(folder: str, exclude: Iterable[str]) -> bool:
    """Tell whether everything in a folder is left out, whatever it is called: then nobody need look into it."""
    return any(pattern.endswith("/*") and fnmatchcase(f"{folder}/", pattern) for pattern in exclude)


def look_of(files: Sequence[File]) -> str:
    """Return what a folder looks like: the same as long as no file came, went or was written."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.size}\0{file.changed_at}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def document_of_url(url: str) -> str:
    """Return what the document of an address is called if nobody says."""
    parts = urlsplit(url)
    path = "/".join(part for part in parts.path.split("/") if part not in {"", ".", ".."})
    return "/".join(filter(None, (parts.hostname or "", path)))[:500]


def document_of(source: Source, path: str) -> str:
    """Return what the document of a file is called; one whose name no text can hold gets one that can."""
    name = f"{source.prefix}{path}".encode("utf-8", "backslashreplace").decode()
    return name.replace("\x00", "")


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a document."""
    if len(name) > _LONGEST_NAME or _CONTROL.search(name):
        raise InvalidInput(
            f"document_id: with its source's prefix it may have {_LONGEST_NAME} characters, none of them to control.",
            field="document_id",
        )


def check_prefix(prefix: str) -> None:
    """Refuse what would not begin the name of a document."""
    if prefix.startswith("/") or {".", ".."} & set(prefix.split("/")):
        raise InvalidInput("prefix: give the beginning of a relative path, such as handbook/.", field="prefix")


def could_name_alike(one: Source, other: Source) -> bool:
    """Tell whether two sources could call their documents the same. An address has just one, called by its prefix."""
    shorter, longer = sorted((one, other), key=lambda source: len(source.prefix))
    if shorter.kind == "url":
        return shorter.prefix == longer.prefix
    return longer.prefix.startswith(shorter.prefix)


def new_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def token_digest(token: str) -> str:
    """Return what a token is known by: the token itself is not kept."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_token_of(source: Source, token: str) -> bool:
    return hmac.compare_digest(source.token_digest, token_digest(token))
