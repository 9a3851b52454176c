"""What sources of knowledge need of storage, of folders and of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from weft.capabilities.knowledge.sources.hooks import SignedCall
    from weft.capabilities.knowledge.sources.model import File, Kind, KnownFile, Source
    from weft.kernel.identity import Actor


class SourceStore(Protocol):
    """The sources of the transaction's tenant, and what each of them has put."""

    async def add(self, source: Source) -> None: ...

    async def find(self, source_id: str) -> Source | None: ...

    async def find_locked(self, source_id: str) -> Source | None:
        """Return a source, before anyone else can change it."""
        ...

    async def of_domain(self, domain: str) -> Sequence[Source]:
        """Return the sources of a domain, oldest first."""
        ...

    async def count(self) -> int:
        """Return how many sources the tenant has."""
        ...

    async def update(self, source: Source) -> None:
        """Write down how a source stands."""
        ...

    async def delete(self, source_id: str) -> None:
        """Remove a source and what is known of its files, but not its documents."""
        ...

    async def files(self, source_id: str) -> Mapping[str, KnownFile]:
        """Return what is known of a source's files, by the documents they became."""
        ...

    async def file(self, source_id: str, document_id: str) -> KnownFile | None:
        """Return what is known of the file that became a document."""
        ...

    async def put_file(self, source_id: str, file: KnownFile) -> None: ...

    async def forget_file(self, source_id: str, document_id: str) -> None: ...

    async def distrust_files(self, source_id: str) -> None:
        """Have every file looked like changed, so that it is read again."""
        ...

    async def answer_to(self, source_id: str, call_id: str) -> str | None:
        """Return what a call to a source's hook was answered, if it was taken and is not forgotten."""
        ...

    async def put_call(self, source_id: str, call: SignedCall, answer: str) -> None:
        """Note a call and its answer; of one that was signed several times, the last of these times."""
        ...

    async def forget_calls(self, source_id: str, before: int) -> None:
        """Forget the calls that were signed before a moment."""
        ...


class Folders(Protocol):
    """The folders of this machine that sources may be in: what is a link in them is never followed."""

    async def check(self, tenant: str, folder: str) -> None:
        """Refuse a folder that a tenant may not have read."""
        ...

    async def files(self, tenant: str, source: Source) -> Sequence[File]:
        """Return the wanted files of a folder, by path."""
        ...

    async def read(self, tenant: str, source: Source, path: str, most_bytes: int) -> bytes:
        """Return what a file holds; one byte more than asked for if it holds more."""
        ...


class Fetched(NamedTuple):
    """What an address gave: something new, the same as before (``content`` is None), or nothing any more (``gone``).

    ``seen`` is what to show it next time, so that it need not give the same again; ``error`` is why it gave nothing.
    """

    content: bytes | None = None
    media_type: str | None = None
    seen: str = ""
    gone: bool = False
    error: str | None = None


class Fetcher(Protocol):
    """Gets documents from addresses, and only from where that is allowed."""

    async def check(self, url: str) -> None:
        """Refuse an address that must not be called."""
        ...

    async def fetch(self, url: str, seen: str, most_bytes: int) -> Fetched:
        """Get what is there, unless it was seen. Whatever happens is in the answer; nothing is raised."""
        ...


class SourceDesk(Protocol):
    """Looks at what a source would be read from, before there is one; and looks at one that is there at once."""

    async def check(self, actor: Actor, kind: Kind, location: str) -> None:
        """Refuse a place that must not be read."""
        ...

    def wake(self) -> None:
        """Have sources looked at that somebody asked for."""
        ...
