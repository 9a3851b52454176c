"""Storage ports of sessions and of the key conventions they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.history.line_kinds import LineKind
    from weftline.history.model import Head
    from weftline.sessions.deletion import SessionContent
    from weftline.sessions.model import Session


_PUT_CONVENTIONS = """
INSERT INTO conventions (tenant, name, definition, updated_by, updated_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, name) DO UPDATE SET
    definition = excluded.definition, updated_by = excluded.updated_by, updated_at = excluded.updated_at
"""


class SessionCursor(NamedTuple):
    """The last session of a page."""

    created_at: int
    session_id: str


class ConventionStore(SqlStore):
    """A tenant's key conventions, by name."""

    async def get(self, name: str) -> dict[str, Any] | None:
        row = await self._tx.one(
            "SELECT definition FROM conventions WHERE tenant = $1 AND name = $2", self._tx.tenant, name
        )
        return None if row is None else msgspec.json.decode(row[0], type=dict[str, Any])

    async def put(self, name: str, definition: dict[str, Any], updated_by: str, at: int) -> None:
        await self._tx.run(
            _PUT_CONVENTIONS, self._tx.tenant, name, msgspec.json.encode(definition).decode(), updated_by, at
        )

    async def names(self) -> Sequence[str]:
        rows = await self._tx.all("SELECT name FROM conventions WHERE tenant = $1 ORDER BY name", self._tx.tenant)
        return [row[0] for row in rows]


class SessionStore(Protocol):
    """The sessions of the transaction's tenant."""

    async def add(self, session: Session) -> bool:
        """Add a session; False if the id is in use, or if data of a deleted session with this id remains."""
        ...

    async def find(self, session_id: str) -> Session | None: ...

    async def find_several(self, session_ids: Iterable[str]) -> Sequence[Session]:
        """Return the sessions with these ids that exist, in any order."""
        ...

    async def find_locked(self, session_id: str) -> tuple[Session, Head] | None:
        """Return a session with the head of its board, both locked for writing."""
        ...

    async def newest(
        self, before: SessionCursor | None, limit: int, *, archived: bool, patterns: AbstractSet[str] | None = None
    ) -> Sequence[Session]:
        """Return sessions older than ``before``, newest first; archived ones only if ``archived``.

        ``patterns`` restricts them to those with one of these in their audience, without reading others.
        """
        ...

    async def has_key_acls(self, session_id: str) -> bool:
        """Tell whether a key of the session may have, or have had, an ACL."""
        ...

    async def note_key_acls(self, session_id: str) -> None:
        """Note that a key of the board has a read ACL: its earlier events are read by that from now on."""
        ...

    async def is_above_creator(self, principal_id: str, session: Session) -> bool:
        """Tell whether a principal is above the creator of a session."""
        ...

    async def set_members(self, session: Session) -> None:
        """Store the members of a session."""
        ...

    async def audiences(self, after: str, limit: int) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Return session ids after ``after``, in order, each with its audience."""
        ...

    async def audiences_changed(self, after_seq: int) -> Sequence[tuple[str, tuple[str, ...] | None]]:
        """Return sessions that an event since then created, deleted or gave other members, each with its audience.

        The audience is None if the session is deleted.
        """
        ...

    async def last_activity(self, session: Session) -> int:
        """Return the time of the last change in the session."""
        ...

    async def archive(self, session_id: str, at: int) -> None: ...

    async def branches(self, session: Session) -> Sequence[str]:
        """Return the names of the branches of a session's board."""
        ...

    async def add_branches(self, session_id: str, more: int) -> None:
        """Add to a session's branch count."""
        ...

    async def lines(self, session_id: str, kinds: Iterable[LineKind]) -> Sequence[str]:
        """Return the lines of a session: its board, session memories, lines of these kinds, and their branches."""
        ...

    async def content(self, session: Session) -> Sequence[SessionContent]:
        """Return what a session contains, by kind and principal."""
        ...

    async def erase(self, session_id: str) -> None:
        """Delete a session with its board, events, session memories and windows."""
        ...
