"""Storage port of context snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from weft.capabilities.history.model import Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.capabilities.history.composite_lines import PartVersion
    from weft.capabilities.history.model import Version

T = TypeVar("T")


class PinnedContext(msgspec.Struct, frozen=True):
    """The context version that a session has pulled for an agent; it never changes.

    ``line_id`` is the line that was pulled, ``held_line`` the line of the commit: a branch inherits commits of its
    parent, which remain when the branch is deleted. ``known`` is the latest version that the session has seen: the one
    it pulled, or one that it pushed since.
    """

    session_id: str
    principal_id: str
    line_id: str
    held_line: str
    version: int
    hash: bytes
    known: int
    known_hash: bytes
    pulled_at: int

    @property
    def held(self) -> Point:
        return Point(self.held_line, self.version, self.hash)

    @property
    def known_point(self) -> Point:
        return Point(self.line_id, self.known, self.known_hash)


class SnapshotStore(Protocol):
    """Context versions pinned in sessions, and their values."""

    async def find(self, session_id: str, principal_id: str) -> PinnedContext | None: ...

    async def put(self, snapshot: PinnedContext, parts: Iterable[PartVersion]) -> None:
        """Pin a version and all its parts for a session, in place of the previous one."""
        ...

    async def states(self, parts: Sequence[PartVersion]) -> Sequence[Sequence[Version]]:
        """Return the entries of each part without values, in few statements."""
        ...

    async def learn(self, session_id: str, principal_id: str, known: Point) -> None:
        """Update the version that a session knows, if it has pinned the same context."""
        ...

    async def values(self, blob_hashes: Iterable[bytes]) -> Mapping[bytes, str]:
        """Return the texts of values by hash."""
        ...
