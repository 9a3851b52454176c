"""What sessions contain, by kind and principal, in SQL."""
# ruff: noqa: S608 - statements of fixed texts

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from weftline.history.reviews import ReviewState
from weftline.kernel.identity import principal_of
from weftline.kernel.transaction import batches, placeholders
from weftline.sessions.deletion import SessionContent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Transaction

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
