"""What every sort of line must offer, so that log, diff, rollback, branch and merge are written once for all of them.

A keeper knows who may see and change its sort of line, and what must happen beside the commit: limits, entries that
are kept ready for reading, events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.capabilities.history.model import Head, Point, Version


class RestorePoint(NamedTuple):
    """A moment that is brought back: what it is called, and when it was."""

    name: str
    at: int


class CommitMeta(NamedTuple):
    """What a commit says of itself. ``merged`` is the other line's moment that it brings in.

    Where an earlier moment is brought back, keys have as much time left as they had then; else they end when they end.
    """

    reason: str
    step: str | None = None
    merged: Point | None = None
    restored: RestorePoint | None = None


class OpenLine(Protocol):
    """A line, opened for one caller to read."""

    @property
    def head(self) -> Head: ...

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        """Return those versions that the caller may read: by the rules of then and of now."""
        ...


class LockedLine(OpenLine, Protocol):
    """A line that nobody else changes until the transaction ends."""

    async def apply(self, state: Mapping[str, Version | None], why: CommitMeta) -> Head:
        """Make keys say what these versions said (None: make them go), as one new commit, and tell whom it concerns.

        Versions without a value that is still kept are refused with VersionPruned. Nothing to change is no commit,
        but for a merge: that it took place must be known to the next one.
        """
        ...

    async def announce(self, event_type: str, subject: str, data: Mapping[str, object]) -> None:
        """Publish what was done to the line itself, to those who may know of it."""
        ...

    async def note_branches(self, change: int) -> None:
        """Take note that the line has more branches than before, or fewer."""
        ...


class LineBackend(Protocol):
    """One sort of line."""

    async def to_read(self, line_id: str) -> OpenLine:
        """Open a line; to whoever may not know of it there is none."""
        ...

    async def to_write(self, line_id: str) -> LockedLine:
        """Open a line behind its lock, for a caller who may change it."""
        ...

    def rollback_clearance(self, line_id: str) -> int:
        """Return the clearance that taking a line back needs."""
        ...
