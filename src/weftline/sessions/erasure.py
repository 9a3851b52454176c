"""What sessions contain, and its deletion in bounded transactions, as that of lines (``weftline.history.erasure``)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from weftline.history.erasure import BATCH, DeferredDeletions, PendingDeletion, is_large
from weftline.history.reviews import ReviewState
from weftline.kernel.identity import principal_of
from weftline.kernel.transaction import batches, placeholders
from weftline.models.sql import FORGET_BATCH_SIZE, UsageStore

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weftline.kernel.transaction import Transaction


# A name in the queue of deferred deletions; no collection has such a name.
SESSION_ROWS = "rows of sessions"
# Tables of a session that grow with its use. What their rows say is found through the session only.
_LARGE_TABLES = {"messages": "message_id", "events": "seq"}
# The event of the deletion itself stays.
_KEPT = {"events": "AND type <> 'session.deleted'"}


async def defer_session(transaction: Transaction, session_id: str) -> Collection[str]:
    """Leave the large tables of a session to the background; return those that were."""
    large = [name for name in _LARGE_TABLES if await is_large(transaction, name, "session_id", session_id)]
    if large:
        await DeferredDeletions(transaction).add(PendingDeletion(SESSION_ROWS, session_id))
    return large


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
            BATCH,
        )
        if deleted:
            return True
    return False


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


class SessionContent(msgspec.Struct, frozen=True):
    """How much of one kind a principal has in a session; None if it belongs to nobody in particular.

    Kinds: messages, writes, windows, memories, pins, snapshots, reviews (open ones), webhooks; keys, branches, records.
    """

    kind: str
    principal_id: str | None
    count: int


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
