"""Ports of knowledge sources: storage, folders, HTTP and the sync job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weftline.kernel.fields import MAX_INT

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.knowledge.sources.hooks import SignedCall
    from weftline.knowledge.sources.model import KnowledgeSource, SourceFile, SourceKind, SyncedFile


class SourceStore(Protocol):
    """Sources of the transaction's tenant, their files and hook calls."""

    async def add(self, source: KnowledgeSource) -> None: ...

    async def find(self, source_id: str) -> KnowledgeSource | None: ...

    async def find_locked(self, source_id: str) -> KnowledgeSource | None:
        """Return a source with a row lock."""
        ...

    async def of_domain(self, domain: str) -> Sequence[KnowledgeSource]:
        """Return the sources of a domain, oldest first."""
        ...

    async def count(self) -> int:
        """Return the number of sources of the tenant."""
        ...

    async def update(self, source: KnowledgeSource) -> None:
        """Update the changeable fields of a source."""
        ...

    async def delete(self, source_id: str) -> None:
        """Delete a source with its files and calls, but not its documents."""
        ...

    async def files(self, source_id: str, limit: int = MAX_INT) -> Mapping[str, SyncedFile]:
        """Return the first files of a source, by document id."""
        ...

    async def file(self, source_id: str, document_id: str) -> SyncedFile | None:
        """Return the file of a document."""
        ...

    async def put_file(self, source_id: str, file: SyncedFile) -> None: ...

    async def delete_file(self, source_id: str, document_id: str) -> None: ...

    async def invalidate_files(self, source_id: str) -> None:
        """Mark all files as changed, so that they are read again."""
        ...

    async def response_to(self, source_id: str, call_id: str) -> str | None:
        """Return the stored response to a hook call, if there is one."""
        ...

    async def put_call(self, source_id: str, call: SignedCall, answer: str) -> None:
        """Store a call and its response; if it was signed several times, with the latest time."""
        ...

    async def delete_calls(self, source_id: str, before: int) -> None:
        """Delete calls signed before a time."""
        ...


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
