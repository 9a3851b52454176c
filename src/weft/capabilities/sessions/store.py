"""What sessions need of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.history.model import Head
    from weft.capabilities.sessions.model import Session


class SessionCursor(NamedTuple):
    """Where a page of sessions ended."""

    created_at: int
    session_id: str


class SessionStore(Protocol):
    """The sessions of the transaction's tenant."""

    async def add(self, session: Session) -> bool:
        """Add a session; False if the id is taken, or what is left of one that had it is still to be deleted."""
        ...

    async def find(self, session_id: str) -> Session | None: ...

    async def find_locked(self, session_id: str) -> tuple[Session, Head] | None:
        """Return a session with the head of its line, keeping other writers of either waiting."""
        ...

    async def newest(self, before: SessionCursor | None, limit: int, *, archived: bool) -> Sequence[Session]:
        """Return sessions newest first, older than ``before``; archived ones only if asked for."""
        ...

    async def audiences(self, after: str, limit: int) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Return the ids of sessions behind one, in order, each with those who may know of it."""
        ...

    async def audiences_changed(self, after_seq: int) -> Sequence[tuple[str, tuple[str, ...] | None]]:
        """Return the ids of sessions that came or went behind an event, each with those who may know of it now."""
        ...

    async def last_activity(self, session: Session) -> int:
        """Return when anything in the session was last changed."""
        ...

    async def archive(self, session_id: str, at: int) -> None: ...

    async def branches(self, session: Session) -> Sequence[str]:
        """Return the names of the branches of a session's board."""
        ...

    async def add_branches(self, session_id: str, more: int) -> None:
        """Note that a session's board has that many more branches, so that they are looked for."""
        ...

    async def lines(self, session_id: str) -> Sequence[str]:
        """Return the lines of what belongs to a session: its board, the branches of that, what agents remember."""
        ...

    async def erase(self, session_id: str) -> None:
        """Remove a session with its board, its events and what agents remember of it."""
        ...
