"""Ports of knowledge sources: folders, HTTP and the sync job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.knowledge.sources.model import SourceKind


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
