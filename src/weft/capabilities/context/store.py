"""What contexts need of storage, beside the lines themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from weft.capabilities.context.contexts import Contexts
    from weft.kernel.identity import Actor

T = TypeVar("T")


class Snapshot(msgspec.Struct, frozen=True):
    """What an agent holds in a session: one version of its context, which never changes.

    ``known`` is the version that the session knows of: the one it pulled, or what it has made of it by pushing since.
    """

    session_id: str
    principal_id: str
    line_id: str
    version: int
    hash: bytes
    known: int
    pulled_at: int


class SnapshotStore(Protocol):
    """What agents hold in sessions, and the values that are shown of it."""

    async def find(self, session_id: str, principal_id: str) -> Snapshot | None: ...

    async def put(self, snapshot: Snapshot) -> None:
        """Let an agent hold this, and nothing of what it held before."""
        ...

    async def learn(self, session_id: str, principal_id: str, line_id: str, known: int) -> None:
        """Note what version of a context a session knows of, if it holds one of the same."""
        ...

    async def values(self, blob_hashes: Iterable[bytes]) -> Mapping[bytes, str]:
        """Return the texts of values that history keeps."""
        ...


class ContextReads(Protocol):
    """Reading contexts on behalf of a caller, where something is to be done after the transaction."""

    async def read(self, actor: Actor, work: Callable[[Contexts], Awaitable[T]]) -> T:
        """Do the work on one consistent view."""
        ...
