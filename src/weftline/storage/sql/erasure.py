"""Deletion of lines and sessions in bounded transactions: small ones at once, the bulk of large ones in the background.

A line or session is gone with the transaction that deletes it. Rows that only it could show may remain for a while, and
until they are gone its name cannot be used again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from weftline.history.blobs import Blobs
from weftline.history.reviews import ReviewState
from weftline.indexing.sql import DeferredDeletions, PendingDeletion
from weftline.kernel.errors import ServerBusy
from weftline.kernel.identity import principal_of
from weftline.kernel.transaction import batches, placeholders
from weftline.models.sql import FORGET_BATCH_SIZE, UsageStore
from weftline.sessions.deletion import SessionContent

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weftline.kernel.transaction import Transaction


# Names in the queue of deferred deletions; no collection has such names.
LINES, SESSION_ROWS = "rows of lines", "rows of sessions"
# Rows that are deleted at once.
_MAX_AT_ONCE = 1_000
_BATCH = 500
_RETRY_SECONDS = 5
# Tables of a session that grow with its use. What their rows say is found through the session only.
_LARGE_TABLES = {"messages": "message_id", "events": "seq"}
_HAS_MORE = "SELECT 1 FROM {table} WHERE tenant = $1 AND {owner} = $2 LIMIT 1 OFFSET $3"
_SOME_CHANGES = "SELECT key, seq, blob_hash, sealed_hash FROM changes WHERE tenant = $1 AND line_id = $2 LIMIT $3"
_DELETE_CHANGE = "DELETE FROM changes WHERE tenant = $1 AND line_id = $2 AND key = $3 AND seq = $4"
_DELETE_COMMITS = """
DELETE FROM commits WHERE tenant = $1 AND line_id = $2 AND seq IN (
    SELECT seq FROM commits WHERE tenant = $1 AND line_id = $2 LIMIT $3)
"""
# The event of the deletion itself stays.
_KEPT = {"events": "AND type <> 'session.deleted'"}


async def defer_line(transaction: Transaction, line_id: str) -> bool:
    """Leave commits and changes of a line to the background if there are many; tell whether they were."""
    if not await _is_large(transaction, "changes", "line_id", line_id):
        return False
    await DeferredDeletions(transaction).add(PendingDeletion(LINES, line_id))
    return True


async def defer_session(transaction: Transaction, session_id: str) -> Collection[str]:
    """Leave the large tables of a session to the background; return those that were."""
    large = [name for name in _LARGE_TABLES if await _is_large(transaction, name, "session_id", session_id)]
    if large:
        await DeferredDeletions(transaction).add(PendingDeletion(SESSION_ROWS, session_id))
    return large


async def check_line_is_gone(transaction: Transaction, line_id: str) -> None:
    """Raise ServerBusy if rows of a deleted line of this name remain: a new one would show them."""
    if await DeferredDeletions(transaction).is_pending(PendingDeletion(LINES, line_id)):
        raise ServerBusy(
            "What had this name before is still being deleted.", retry_after_seconds=_RETRY_SECONDS, context_id=line_id
        )


async def delete_line_batch(transaction: Transaction, line_id: str) -> bool:
    """Delete some rows of a deleted line; tell whether more may remain."""
    rows = await transaction.all(_SOME_CHANGES, transaction.tenant, line_id, _BATCH)
    if rows:
        await transaction.many(_DELETE_CHANGE, [(transaction.tenant, line_id, row[0], row[1]) for row in rows])
        await Blobs(transaction).forget(each for row in rows for each in row[2:] if each is not None)
        return True
    return await transaction.changed(_DELETE_COMMITS, transaction.tenant, line_id, _BATCH) == _BATCH


async def delete_session_batch(transaction: Transaction, session_id: str) -> bool:
    """Delete some rows of a deleted session; tell whether more may remain."""
    if await UsageStore(transaction).forget_session(session_id, FORGET_BATCH_SIZE):
        return True
    for table, key in _LARGE_TABLES.items():
        kept = _KEPT.get(table, "")
        deleted = await transaction.changed(
            f"DELETE FROM {table} WHERE tenant = $1 AND session_id = $2 {kept} AND {key} IN ("
            f"SELECT {key} FROM {table} WHERE tenant = $1 AND session_id = $2 {kept} LIMIT $3)",
            transaction.tenant,
            session_id,
            _BATCH,
        )
        if deleted:
            return True
    return False


async def _is_large(transaction: Transaction, table: str, owner: str, name: str) -> bool:
    row = await transaction.one(_HAS_MORE.format(table=table, owner=owner), transaction.tenant, name, _MAX_AT_ONCE)
    return row is not None


# What sessions contain, by kind and principal, in SQL.

# ruff: noqa: S608 - statements of fixed texts


_OF_SESSION = "WHERE tenant = $1 AND session_id = $2"
_ON_LINES = f"WHERE tenant = $1 AND line_id IN ({placeholders(2)})"
_IS_OPEN = f"state = '{ReviewState.OPEN}'"
_IN_SESSION = {
    "messages": f"SELECT sender, COUNT(*) FROM messages {_OF_SESSION} GROUP BY sender",
    "windows": f"SELECT agent_id, COUNT(*) FROM windows {_OF_SESSION} GROUP BY agent_id",
    "memories": """
        SELECT m.principal_id, COUNT(*) FROM session_memories m
        JOIN memory_entries e ON e.tenant = m.tenant AND e.principal_id = m.principal_id AND e.session_id = m.session_id
        WHERE m.tenant = $1 AND m.session_id = $2 GROUP BY m.principal_id
    """,
    "pins": f"SELECT pinned_by, COUNT(*) FROM pinned_items {_OF_SESSION} GROUP BY pinned_by",
    "webhooks": f"SELECT principal_id, COUNT(*) FROM webhooks {_OF_SESSION} GROUP BY principal_id",
    "keys": f"SELECT NULL, COUNT(*) FROM entries {_OF_SESSION}",
    "records": f"SELECT NULL, COUNT(*) FROM records {_OF_SESSION}",
}
# Snapshots and reviews name participants, whose last part is the principal's id.
_IN_LINES = {
    "writes": f"SELECT principal_id, COUNT(*) FROM commits {_ON_LINES} GROUP BY principal_id",
    "snapshots": f"SELECT created_by, COUNT(*) FROM tags {_ON_LINES} AND automatic = 0 GROUP BY created_by",
    "reviews": f"SELECT opened_by, COUNT(*) FROM reviews {_ON_LINES} AND {_IS_OPEN} GROUP BY opened_by",
}


async def session_content(
    transaction: Transaction, session_id: str, boards: Sequence[str], branches: int
) -> list[SessionContent]:
    """Return what a session with these lines of its board contains."""
    found: Counter[tuple[str, str | None]] = Counter()
    for kind in sorted(_IN_SESSION):
        for who, count in await transaction.all(_IN_SESSION[kind], transaction.tenant, session_id):
            found[kind, who] += count
    for kind in sorted(_IN_LINES):
        for lines in batches(boards):
            for author, count in await transaction.all(_IN_LINES[kind], transaction.tenant, *lines):
                found[kind, principal_of(author)] += count
    found["branches", None] = branches
    return [SessionContent(kind, who, count) for (kind, who), count in found.items() if count]
