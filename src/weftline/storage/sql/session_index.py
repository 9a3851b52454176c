"""SQL queries of the session index: backlog of the indexer, and immediate removals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.collections import LOCK_ORDER
from weftline.kernel.job_store import JobStore, Progress
from weftline.search.session_cursor import EMBEDDING_JOB, INDEXING_JOB, REINDEXING_JOB, IndexCursor, pending_events
from weftline.sessions.events.sql import EventStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.events import StoredEvent
    from weftline.kernel.transaction import Transaction


async def tenants_with_backlog(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants with unindexed events that no worker has leased."""
    rows = await transaction.all(
        """
        SELECT tenants.tenant FROM tenants LEFT JOIN jobs j ON j.tenant = tenants.tenant AND j.job = $1
        WHERE tenants.event_seq > COALESCE(CAST(NULLIF(j.cursor, '') AS {bigint}), 0)
          AND COALESCE(j.lease_until, 0) <= $2 AND COALESCE(j.due_at, 0) <= $2
        ORDER BY tenants.tenant
        """,
        INDEXING_JOB,
        now,
    )
    return [row[0] for row in rows]


async def tenants_reindexing(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants with a reindex in progress that no worker has leased."""
    rows = await transaction.all(
        """
        SELECT tenants.tenant FROM tenants JOIN jobs j ON j.tenant = tenants.tenant AND j.job = $1
        LEFT JOIN jobs f ON f.tenant = tenants.tenant AND f.job = $2
        WHERE COALESCE(f.lease_until, 0) <= $3 ORDER BY tenants.tenant
        """,
        REINDEXING_JOB,
        INDEXING_JOB,
        now,
    )
    return [row[0] for row in rows]


async def tenants_to_embed(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants with chunks to embed, unless a worker has leased them or they are not searched by meaning."""
    rows = await transaction.all(
        """
        SELECT tenants.tenant FROM tenants JOIN jobs j ON j.tenant = tenants.tenant AND j.job = $1
        WHERE j.lease_until <= $2 AND j.progress > '' AND tenants.semantic_search = 1 ORDER BY tenants.tenant
        """,
        EMBEDDING_JOB,
        now,
    )
    return [row[0] for row in rows]


async def tenants_never_indexed(transaction: Transaction) -> int:
    """Return the number of tenants whose older events or memory were never indexed; a reindex does not count."""
    rows = await transaction.all("SELECT cursor, progress FROM jobs WHERE job = $1", REINDEXING_JOB)
    return sum(IndexCursor.of(Progress(*row)).reindex is None for row in rows)


async def largest_backlog(transaction: Transaction) -> int:
    """Return the largest number of unindexed events of a tenant."""
    row = await transaction.one(
        """
        SELECT COALESCE(MAX(tenants.event_seq - COALESCE(CAST(NULLIF(j.cursor, '') AS {bigint}), 0)), 0)
        FROM tenants LEFT JOIN jobs j ON j.tenant = tenants.tenant AND j.job = $1
        """,
        INDEXING_JOB,
    )
    return 0 if row is None else int(row[0])


class UnindexedEvents(NamedTuple):
    """Unindexed events of a tenant: the next new ones, and old ones that were never indexed.

    ``newest`` are the last new ones, if there are more than the next.
    """

    new: Sequence[StoredEvent]
    old: Sequence[StoredEvent]
    newest: Sequence[StoredEvent] = ()


async def unindexed_events(transaction: Transaction, limit: int, newest: int) -> UnindexedEvents:
    """Return unindexed events of the tenant's log, at most ``limit`` and ``newest``."""
    jobs, events = JobStore(transaction), EventStore(transaction)
    progress, unindexed_before = await jobs.progress(INDEXING_JOB), await _unindexed_before(jobs)
    last, reached = await events.last_seq(), 0 if progress is None else IndexCursor.of(progress).seq
    new = await events.after(reached, None, limit) if last > reached else []
    tail = await events.before(last + 1, newest) if len(new) == limit else []
    old = await events.before(unindexed_before, limit - len(new)) if unindexed_before and len(new) < limit else []
    return UnindexedEvents(new, old, [each for each in tail if each.event.seq > new[-1].event.seq])


async def indexed_up_to(transaction: Transaction) -> int:
    """Return the number of the last event of the tenant that is indexed, with all before it."""
    progress = await JobStore(transaction).progress(INDEXING_JOB)
    return 0 if progress is None else IndexCursor.of(progress).seq


async def is_indexed(transaction: Transaction, last: int) -> bool:
    """Return whether every event of the tenant up to ``last`` is indexed, those before the start of indexing too."""
    return await indexed_up_to(transaction) >= last and not await _unindexed_before(JobStore(transaction))


async def events_pending(transaction: Transaction) -> int:
    """Return the number of unindexed events of the tenant's log."""
    jobs = JobStore(transaction)
    last = await EventStore(transaction).last_seq()
    return pending_events(await jobs.progress(INDEXING_JOB), last) + max(0, await _unindexed_before(jobs) - 1)


async def _unindexed_before(jobs: JobStore) -> int:
    """Return the event before which none is indexed yet; 0 if there is none, or if they are only reindexed."""
    progress = await jobs.progress(REINDEXING_JOB)
    position = IndexCursor() if progress is None else IndexCursor.of(progress)
    return position.seq if position.reindex is None else 0


# Health queries of the search index, over all tenants.


async def documents_failed(transaction: Transaction) -> int:
    """Return the number of documents that could not be indexed."""
    rows = await transaction.all(
        """
        SELECT (SELECT COUNT(*) FROM documents d
                WHERE d.tenant = domains.tenant AND d.domain = domains.domain AND d.state = 'failed')
        FROM domains
        """
    )
    return sum(row[0] for row in rows)


async def documents_waiting(transaction: Transaction, since: int) -> int:
    """Return the number of documents queued for indexing since before a time."""
    rows = await transaction.all(
        """
        SELECT (SELECT COUNT(*) FROM documents d
                WHERE d.tenant = tenants.tenant AND d.state = 'pending' AND d.queued_at > 0 AND d.queued_at < $1)
        FROM tenants
        """,
        since,
    )
    return sum(row[0] for row in rows)


async def models_of_tenants(transaction: Transaction) -> list[tuple[str, str]]:
    """Return the models that tenants search with or migrate to, with their role."""
    rows = await transaction.all(
        "SELECT DISTINCT model, role FROM tenant_models WHERE role IN ('serving', 'building') ORDER BY model, role"
    )
    return [(row[0], row[1]) for row in rows]


async def miscounted_collections(transaction: Transaction) -> int:
    """Return the number of collections with more or fewer chunks than were written, or with chunks but no state."""
    rows = await transaction.all(
        """
        SELECT collections.chunks, (SELECT COUNT(*) FROM chunks k
                                    WHERE k.tenant = collections.tenant AND k.collection = collections.collection)
        FROM collections
        """
    )
    damaged = sum(int(row[0]) != int(row[1]) for row in rows)
    for collection in LOCK_ORDER:
        without_state = await transaction.all(
            """
            SELECT tenants.tenant FROM tenants
            WHERE EXISTS (SELECT 1 FROM chunks k WHERE k.tenant = tenants.tenant AND k.collection = $1)
              AND NOT EXISTS (SELECT 1 FROM collections
                              WHERE collections.tenant = tenants.tenant AND collections.collection = $1)
            """,
            collection,
        )
        damaged += len(without_state)
    return damaged


async def stalled_model_migrations(transaction: Transaction, since: int) -> int:
    """Return the number of unfinished model migrations that have a problem or started before a time."""
    row = await transaction.one(
        """
        SELECT COUNT(*) FROM model_migrations
        WHERE finished_at IS NULL AND (problem IS NOT NULL OR started_at < $1)
        """,
        since,
    )
    return 0 if row is None else int(row[0])
