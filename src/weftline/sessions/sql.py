"""Sessions, and the key conventions that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.history.erasure import LINES, DeferredDeletions, PendingDeletion
from weftline.history.line_kinds import SESSION, line_kinds, line_of
from weftline.history.model import Head, branch_of
from weftline.history.sql import erase_derivations
from weftline.indexing.collections import SESSIONS, WINDOWS, WindowPlace
from weftline.indexing.sql import CollectionStore, in_json
from weftline.kernel.identity import named_types
from weftline.kernel.patterns import decode_audience, encode_audience
from weftline.kernel.transaction import SqlStore, batches
from weftline.models.sql import FORGET_BATCH_SIZE, UsageStore
from weftline.records.sql import erase_record_items
from weftline.safety.approvals.sql import erase_approvals
from weftline.sessions.erasure import SESSION_ROWS, defer_session, session_content
from weftline.sessions.model import Session, SessionConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.history.line_kinds import LineKind
    from weftline.kernel.transaction import Row
    from weftline.sessions.erasure import SessionContent

_SESSION = """
SELECT s.session_id, s.purpose, s.metadata, s.config, s.created_by, s.created_at, s.updated_at, s.archived_at,
       s.message_count, s.last_message_at, s.branches, s.audience
FROM sessions s
"""
# One statement for what every write reads first. Both rows are locked: on PostgreSQL a row that is only joined is
# returned as it was before the wait for the lock.
_SESSION_WITH_LINE = """
SELECT s.session_id, s.purpose, s.metadata, s.config, s.created_by, s.created_at, s.updated_at, s.archived_at,
       s.message_count, s.last_message_at, s.branches, s.audience, l.seq, l.head, l.weight, l.next_expiry_at, l.step
FROM lines l JOIN sessions s ON s.tenant = l.tenant
WHERE l.tenant = $1 AND l.line_id = $2 AND s.session_id = $3 {for_update}
"""
_COLUMNS = 12
_IS_ABOVE = """
WITH RECURSIVE above (principal_id) AS (
    SELECT parent_id FROM principals WHERE tenant = $1 AND principal_id = $2
    UNION
    SELECT p.parent_id FROM above CROSS JOIN principals p
    WHERE p.tenant = $1 AND p.principal_id = above.principal_id)
SELECT 1 FROM above WHERE principal_id = $3
"""
# The board's last commit is the session's last activity; a copy of that time would make every write dearer.
_LAST_COMMIT = """
SELECT c.committed_at FROM lines l
JOIN commits c ON c.tenant = l.tenant AND c.line_id = l.line_id AND c.seq = l.seq
WHERE l.tenant = $1 AND l.line_id = $2
"""
_LAST_COMMIT_ON_BRANCHES = """
SELECT MAX(c.committed_at) FROM lines l
JOIN commits c ON c.tenant = l.tenant AND c.line_id = l.line_id AND c.seq = l.seq
WHERE l.tenant = $1 AND l.trunk = $2
"""

_config = msgspec.json.Decoder(SessionConfig)
_known_configs: dict[str, SessionConfig] = {}


_TABLES_WITH_SESSIONS = "SELECT table_name FROM {columns} WHERE column_name = 'session_id' ORDER BY table_name"
# Usage stays as sums without the session, and approvals that are being performed and webhooks outlive it.
_OUTLIVING_TABLES = frozenset(("approvals", "usage_entries", "usage_rollups", "webhooks"))
_ADD = """
INSERT INTO sessions (tenant, session_id, purpose, metadata, config, created_by, created_at, updated_at, audience,
                      key_acls)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0) ON CONFLICT DO NOTHING
"""
_ADD_MEMBER = """
INSERT INTO session_members (tenant, pattern, created_at, session_id, archived) VALUES ($1, $2, $3, $4, $5)
"""
_NEWEST = f"""
{_SESSION}
WHERE s.tenant = $1 AND (s.created_at, s.session_id) < ($2, $3) AND (s.archived_at IS NULL OR $4 = 1)
ORDER BY s.created_at DESC, s.session_id DESC LIMIT $5
"""
# The newest sessions of each pattern, by index: the sessions of others are not read, however many there are.
_PATTERNS = 16
_NEWEST_OF_PATTERN = """
SELECT created_at, session_id FROM (
    SELECT created_at, session_id FROM session_members
    WHERE tenant = $1 AND (created_at, session_id) < ($2, $3) AND (archived = 0 OR $4 = 1) AND pattern = $5
    ORDER BY created_at DESC, session_id DESC LIMIT $6) AS page
"""
_NEWEST_OF = " UNION ALL ".join(
    _NEWEST_OF_PATTERN.replace("$5", f"${place}") for place in (5, *range(7, 6 + _PATTERNS))
)
_AUDIENCES = """
SELECT session_id, audience FROM sessions
WHERE tenant = $1 AND session_id > $2 ORDER BY session_id LIMIT $3
"""
_AUDIENCES_CHANGED = """
SELECT e.session_id, s.audience FROM events e
LEFT JOIN sessions s ON s.tenant = e.tenant AND s.session_id = e.session_id
WHERE e.tenant = $1 AND e.seq > $2
  AND e.type IN ('session.created', 'session.imported', 'session.members_changed', 'session.deleted')
"""


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


class SessionStore(SqlStore):
    """The sessions of the transaction's tenant."""

    async def add(self, session: Session) -> bool:
        """Add a session; False if the id is in use, or if data of a deleted session with this id remains."""
        added = await self._tx.changed(
            _ADD,
            self._tx.tenant,
            session.session_id,
            session.purpose,
            msgspec.json.encode(session.metadata).decode(),
            msgspec.json.encode(session.config).decode(),
            session.created_by,
            session.created_at,
            session.updated_at,
            encode_audience(session.audience),
        )
        if added:
            self._tx.named_types |= named_types(session.audience)
            await self._add_members(session)
        # Rows left of a deleted session with this id would become visible again.
        deletions = DeferredDeletions(self._tx)
        return (
            added > 0
            and not await deletions.is_pending(PendingDeletion(SESSIONS, session.session_id))
            and not await deletions.is_pending(PendingDeletion(SESSION_ROWS, session.session_id))
            and not await deletions.is_pending(PendingDeletion(LINES, line_of(session.session_id)))
            and not await deletions.any_pending(WINDOWS, str(WindowPlace(session.session_id, "")))
        )

    async def find(self, session_id: str) -> Session | None:
        row = await self._tx.one(_SESSION + "WHERE s.tenant = $1 AND s.session_id = $2", self._tx.tenant, session_id)
        return None if row is None else _session(row)

    async def find_several(self, session_ids: Iterable[str]) -> Sequence[Session]:
        """Return the sessions with these ids that exist, in any order."""
        rows = await self._tx.all(
            _SESSION + "WHERE s.tenant = $1 AND s.session_id {among_texts}$2{end_among_texts}",
            self._tx.tenant,
            in_json(session_ids),
        )
        return [_session(row) for row in rows]

    async def find_locked(self, session_id: str) -> tuple[Session, Head] | None:
        """Return a session with the head of its board, both locked for writing."""
        line_id = line_of(session_id)
        row = await self._tx.one(_SESSION_WITH_LINE, self._tx.tenant, line_id, session_id)
        return None if row is None else (_session(row[:_COLUMNS]), Head(line_id, *row[_COLUMNS:]))

    async def newest(
        self, before: SessionCursor | None, limit: int, *, archived: bool, patterns: AbstractSet[str] | None = None
    ) -> Sequence[Session]:
        """Return sessions older than ``before``, newest first; archived ones only if ``archived``.

        ``patterns`` restricts them to those with one of these in their audience, without reading others.
        """
        position = (before.created_at, before.session_id) if before else (2**62, "")
        if patterns is not None:
            return await self._newest_of(patterns, (*position, int(archived)), limit)
        rows = await self._tx.all(_NEWEST, self._tx.tenant, *position, int(archived), limit)
        return [_session(row) for row in rows]

    async def _newest_of(self, patterns: AbstractSet[str], after: tuple[int, str, int], limit: int) -> list[Session]:
        found: set[tuple[int, str]] = set()
        for first, *others in batches(sorted(patterns), _PATTERNS):
            found.update(map(tuple, await self._tx.all(_NEWEST_OF, self._tx.tenant, *after, first, limit, *others)))
        names = [session_id for _, session_id in sorted(found, reverse=True)[:limit]]
        sessions = {each.session_id: each for each in await self.find_several(names)}
        return [sessions[name] for name in names]

    async def has_key_acls(self, session_id: str) -> bool:
        """Tell whether a key of the session may have, or have had, an ACL."""
        row = await self._tx.one(
            "SELECT key_acls FROM sessions WHERE tenant = $1 AND session_id = $2", self._tx.tenant, session_id
        )
        return row is None or row[0] != 0

    async def note_key_acls(self, session_id: str) -> None:
        """Note that a key of the board has a read ACL: its earlier events are read by that from now on."""
        await self._tx.run(
            "UPDATE sessions SET key_acls = 1 WHERE tenant = $1 AND session_id = $2 AND key_acls = 0",
            self._tx.tenant,
            session_id,
        )

    async def is_above_creator(self, principal_id: str, session: Session) -> bool:
        """Tell whether a principal is above the creator of a session."""
        return bool(await self._tx.all(_IS_ABOVE, self._tx.tenant, session.created_by, principal_id))

    async def set_members(self, session: Session) -> None:
        """Store the members of a session."""
        self._tx.named_types |= named_types(session.audience)
        own = self._tx.tenant, session.session_id
        await self._tx.run(
            "UPDATE sessions SET audience = $1 WHERE tenant = $2 AND session_id = $3",
            encode_audience(session.audience),
            *own,
        )
        await self._tx.run("DELETE FROM session_members WHERE tenant = $1 AND session_id = $2", *own)
        await self._add_members(session)

    async def _add_members(self, session: Session) -> None:
        archived = int(session.archived_at is not None)
        tenant, made = self._tx.tenant, session.created_at
        await self._tx.many(
            _ADD_MEMBER, [(tenant, pattern, made, session.session_id, archived) for pattern in {*session.audience}]
        )

    async def audiences(self, after: str, limit: int) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Return session ids after ``after``, in order, each with its audience."""
        rows = await self._tx.all(_AUDIENCES, self._tx.tenant, after, limit)
        return [(session_id, decode_audience(audience)) for session_id, audience in rows]

    async def audiences_changed(self, after_seq: int) -> Sequence[tuple[str, tuple[str, ...] | None]]:
        """Return sessions that an event since then created, deleted or gave other members, each with its audience.

        The audience is None if the session is deleted.
        """
        # Each once, by Python: with DISTINCT, SQLite reads the whole log in the order of sessions.
        changed = dict(map(tuple, await self._tx.all(_AUDIENCES_CHANGED, self._tx.tenant, after_seq)))
        return [(name, None if audience is None else decode_audience(audience)) for name, audience in changed.items()]

    async def last_activity(self, session: Session) -> int:
        """Return the time of the last change in the session."""
        board = line_of(session.session_id)
        rows = [await self._tx.one(_LAST_COMMIT, self._tx.tenant, board)]
        if session.branches:
            rows.append(await self._tx.one(_LAST_COMMIT_ON_BRANCHES, self._tx.tenant, board))
        commits: list[int] = [row[0] for row in rows if row is not None and row[0] is not None]
        return max(session.updated_at, session.last_message_at or 0, *commits)

    async def archive(self, session_id: str, at: int) -> None:
        await self._tx.run(
            "UPDATE sessions SET archived_at = $1, updated_at = $1 WHERE tenant = $2 AND session_id = $3",
            at,
            self._tx.tenant,
            session_id,
        )
        await self._tx.run(
            "UPDATE session_members SET archived = 1 WHERE tenant = $1 AND session_id = $2",
            self._tx.tenant,
            session_id,
        )

    async def branches(self, session: Session) -> Sequence[str]:
        """Return the names of the branches of a session's board."""
        lines = await self._branch_lines(session.session_id) if session.branches else ()
        return [name for line_id in lines if (name := branch_of(line_id)) is not None]

    async def add_branches(self, session_id: str, more: int) -> None:
        """Add to a session's branch count."""
        await self._tx.run(
            "UPDATE sessions SET branches = branches + $1 WHERE tenant = $2 AND session_id = $3",
            more,
            self._tx.tenant,
            session_id,
        )

    async def lines(self, session_id: str) -> Sequence[str]:
        """Return the lines of a session, of every kind, and their branches."""
        branches = await self._branch_lines(session_id)
        found = [line_of(session_id), *branches]
        for kind in line_kinds().values():
            if kind.session_lines is not None:
                found += await kind.session_lines(self._tx, session_id)
            elif kind.has_name(SESSION) and not kind.of_session:
                found += await self._lines_of_kind(kind, session_id)
        return found

    async def content(self, session: Session) -> Sequence[SessionContent]:
        """Return what a session contains, by kind and principal."""
        branches = await self._branch_lines(session.session_id)
        boards = [line_of(session.session_id), *branches]
        return await session_content(self._tx, session.session_id, boards, len(branches))

    async def erase(self, session_id: str) -> None:
        """Delete a session with its board, events, session memories and windows."""
        collections = CollectionStore(self._tx)
        await collections.lock(SESSIONS)
        await collections.remove_place(SESSIONS, session_id)
        for kind in line_kinds().values():
            if kind.erase_session is not None:
                await kind.erase_session(self._tx, session_id)
        await erase_approvals(self._tx, session_id)
        await erase_record_items(self._tx, session_id)
        await erase_derivations(self._tx, f"message:{session_id}")
        deferred = await defer_session(self._tx, session_id)
        if await UsageStore(self._tx).forget_session(session_id, FORGET_BATCH_SIZE):
            await DeferredDeletions(self._tx).add(PendingDeletion(SESSION_ROWS, session_id))
        for (table,) in await self._tx.all(_TABLES_WITH_SESSIONS):
            if table not in deferred and table not in _OUTLIVING_TABLES:
                await self._tx.run(
                    f"DELETE FROM {table} WHERE tenant = $1 AND session_id = $2",  # noqa: S608 - a name in our schema
                    self._tx.tenant,
                    session_id,
                )

    async def _lines_of_kind(self, kind: LineKind, session_id: str) -> list[str]:
        rows = await self._tx.all(
            "SELECT line_id FROM lines WHERE tenant = $1 AND line_id > $2 AND line_id LIKE $3 ORDER BY line_id",
            self._tx.tenant,
            f"{kind.prefix}:",
            f"{kind.prefix}:%{session_id}%",
        )
        return [line_id for (line_id,) in rows if kind.named(SESSION, line_id) == session_id]

    async def _branch_lines(self, session_id: str) -> list[str]:
        rows = await self._tx.all(
            "SELECT line_id FROM lines WHERE tenant = $1 AND trunk = $2 ORDER BY line_id",
            self._tx.tenant,
            line_of(session_id),
        )
        return [row[0] for row in rows]


def _session(row: Row) -> Session:
    session_id, purpose, metadata, config, *rest, audience = row
    _, *members = decode_audience(audience)
    described: tuple[Any, ...] = (msgspec.json.decode(metadata), _decode_config(config), *rest, tuple(members))
    return Session(session_id, purpose, *described)


def _decode_config(text: str) -> SessionConfig:
    # Cached: most sessions share a few configurations, and every call on a board decodes one.
    config = _known_configs.get(text)
    if config is None:
        if len(_known_configs) > 1_000:  # noqa: PLR2004 - a bound on memory, not a rule
            _known_configs.clear()
        config = _known_configs[text] = _config.decode(text)
    return config
