"""What is said in sessions, in the collections where it is searched: who is behind with it, and what goes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.indexing.collections.model import MEMORY, SESSIONS
from weft.capabilities.search.items import MemoryKey
from weft.capabilities.search.session_indexing.cursor import FOLLOWING, REINDEXING, IndexCursor, pending_of
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.events import SqlEventStore
from weft.storage.sql.jobs import SqlJobStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.kernel.events import StoredEvent
    from weft.storage.sql.database import Transaction


async def tenants_behind(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants whose log has news that were not looked at, and that nobody has in hand."""
    rows = await transaction.all(
        """
        SELECT tenants.tenant FROM tenants LEFT JOIN jobs j ON j.tenant = tenants.tenant AND j.job = $1
        WHERE tenants.event_seq > COALESCE(CAST(NULLIF(j.cursor, '') AS {bigint}), 0)
          AND COALESCE(j.lease_until, 0) <= $2 AND COALESCE(j.due_at, 0) <= $2
        ORDER BY tenants.tenant
        """,
        FOLLOWING,
        now,
    )
    return [row[0] for row in rows]


async def tenants_reindexing(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants whose log is gone through once more, and that nobody has in hand."""
    rows = await transaction.all(
        """
        SELECT tenants.tenant FROM tenants JOIN jobs j ON j.tenant = tenants.tenant AND j.job = $1
        LEFT JOIN jobs f ON f.tenant = tenants.tenant AND f.job = $2
        WHERE COALESCE(f.lease_until, 0) <= $3 ORDER BY tenants.tenant
        """,
        REINDEXING,
        FOLLOWING,
        now,
    )
    return [row[0] for row in rows]


async def most_behind(transaction: Transaction) -> int:
    """Return how many events the tenant has before it with which this work is furthest behind."""
    row = await transaction.one(
        """
        SELECT COALESCE(MAX(tenants.event_seq - COALESCE(CAST(NULLIF(j.cursor, '') AS {bigint}), 0)), 0)
        FROM tenants LEFT JOIN jobs j ON j.tenant = tenants.tenant AND j.job = $1
        """,
        FOLLOWING,
    )
    return 0 if row is None else int(row[0])


async def erase_from_collections(transaction: Transaction, session_id: str, owners: Sequence[str]) -> None:
    """Take everything of a session off the collections: what was said in it, and what these agents remember of it."""
    collections = SqlCollectionStore(transaction)
    await collections.lock(SESSIONS)
    await collections.remove_place(SESSIONS, session_id)
    if not owners:
        return
    await collections.lock(MEMORY)
    for owner in owners:
        rows = await transaction.all(
            """
            SELECT number FROM chunks
            WHERE tenant = $1 AND collection = $2 AND place = $3 AND SUBSTR(item, 1, $4) = $5 ORDER BY number
            """,
            transaction.tenant,
            MEMORY,
            owner,
            len(within := str(MemoryKey(session_id, ""))),
            within,
        )
        await collections.remove(MEMORY, [row[0] for row in rows])


async def take_off_message(transaction: Transaction, session_id: str, message_id: int) -> None:
    """Take a message off its collection until it comes again for those who may see it now."""
    collections = SqlCollectionStore(transaction)
    await collections.lock(SESSIONS)
    await collections.remove_item(SESSIONS, session_id, str(message_id))


async def first_pending(transaction: Transaction, limit: int) -> Sequence[StoredEvent]:
    """Return events of the tenant's log that were not looked at yet, those that are next."""
    jobs, events = SqlJobStore(transaction), SqlEventStore(transaction)
    progress, earlier = await jobs.progress(FOLLOWING), await _unseen_before(jobs)
    found: Sequence[StoredEvent] = []
    if pending_of(progress, await events.last_seq()):
        found = await events.after(0 if progress is None else IndexCursor.of(progress).seq, None, limit)
    return [*found, *await events.before(earlier, limit - len(found))] if earlier else found


async def events_pending(transaction: Transaction) -> int:
    """Return how many events of the tenant's log were not looked at yet: what they tell of may not be found."""
    jobs = SqlJobStore(transaction)
    last = await SqlEventStore(transaction).last_seq()
    return pending_of(await jobs.progress(FOLLOWING), last) + max(0, await _unseen_before(jobs) - 1)


async def _unseen_before(jobs: SqlJobStore) -> int:
    """Return the event before which none was looked at; 0 if there is no such event, or all is only put up anew."""
    progress = await jobs.progress(REINDEXING)
    position = IndexCursor() if progress is None else IndexCursor.of(progress)
    return position.seq if position.anew is None else 0
