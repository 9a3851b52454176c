"""Ports of knowledge sources: folders, HTTP and the sync job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.knowledge.sources.model import KnowledgeSource, SourceFile, SourceKind


class FolderReader(Protocol):
    """Reads files of allowed folders; symbolic links are not followed, hard links are refused."""

    async def check(self, tenant: str, folder: str) -> None:
        """Raise FolderRefused unless the tenant may use the folder."""
        ...

    async def files(self, tenant: str, source: KnowledgeSource) -> Sequence[SourceFile]:
        """Return the included files of a folder, by path."""
        ...

    async def read(self, tenant: str, source: KnowledgeSource, path: str, max_bytes: int) -> bytes:
        """Return the content of a file; ``max_bytes`` + 1 bytes if it is larger."""
        ...


class FetchResult(NamedTuple):
    """Result of a fetch: new content, not modified (``content`` is None), ``gone``, or ``error``.

    ``validator`` makes the next fetch conditional.
    """

    content: bytes | None = None
    media_type: str | None = None
    validator: str = ""
    gone: bool = False
    error: str | None = None


class Fetcher(Protocol):
    """Fetches documents over HTTP, from allowed addresses only."""

    async def check(self, url: str) -> None:
        """Raise AddressRefused unless the URL may be fetched."""
        ...

    async def fetch(self, url: str, validator: str, max_bytes: int) -> FetchResult:
        """Fetch a URL, unless it is not modified. Failures are part of the result; nothing is raised."""
        ...


class SourceControl(Protocol):
    """Controls the sync job: checks locations and starts requested syncs."""

    async def check(self, actor: Actor, kind: SourceKind, location: str) -> None:
        """Raise an error unless the location may be read."""
        ...

    def wake(self) -> None:
        """Wake the job, to run requested syncs."""
        ...
