"""Storage port of context snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from weftline.history.composite_lines import PartVersion
from weftline.history.model import Point, trunk_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.history.model import Version

T = TypeVar("T")


# The agent has not seen the version: prompts have it since the first one of the session, but nobody pulled it.
UNSEEN = -1


class PinnedContext(msgspec.Struct, frozen=True):
    """The context version that a session has for an agent, since its last pull or its first prompt; it never changes.

    ``line_id`` is the line that was pulled, ``held_line`` the line of the commit: a branch inherits commits of its
    parent, which remain when the branch is deleted. ``known`` is the latest version that the session has seen: the one
    it pulled, or one that it pushed since; UNSEEN if it never pulled. ``shared`` are the versions of the memory of
    the agent's teams and users, 0 of one without entries; None in snapshots that pinned none.
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
    shared: tuple[PartVersion, ...] | None = None

    @property
    def held(self) -> Point:
        return Point(self.held_line, self.version, self.hash)

    @property
    def known_point(self) -> Point:
        return Point(self.line_id, self.known, self.known_hash)

    def shared_version(self, root_id: str) -> PartVersion | None:
        """Return the pinned version of the memory of a team or user, by its root; None if there is none."""
        return next((at for at in self.shared or () if trunk_of(at.line) == root_id), None)


class SnapshotStore(Protocol):
    """Context versions pinned in sessions, and their values."""

    async def find(self, session_id: str, principal_id: str) -> PinnedContext | None: ...

    async def put(self, snapshot: PinnedContext, parts: Iterable[PartVersion]) -> None:
        """Pin a version, all its parts and the shared memory for a session, in place of the previous ones."""
        ...

    async def states(self, parts: Sequence[PartVersion]) -> Sequence[Sequence[Version]]:
        """Return the entries of each part without values, in few statements."""
        ...

    async def learn(self, session_id: str, principal_id: str, known: Point) -> None:
        """Update the version that a session knows, if it has pulled the same context."""
        ...

    async def values(self, blob_hashes: Iterable[bytes]) -> Mapping[bytes, str]:
        """Return the texts of values by hash."""
        ...
