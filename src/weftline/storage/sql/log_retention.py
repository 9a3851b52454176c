"""Retention of the event log and the audit log in SQL: both are deleted from the front, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.job_store import JobStore
from weftline.kernel.transaction import SqlStore
from weftline.search.session_cursor import INDEXING_JOB, REINDEXING_JOB, IndexCursor

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction

_END = 2**62
_NEXT_EVENTS = """
SELECT seq, at, origin IS NULL FROM events WHERE tenant = $1 AND seq > $2 AND seq < $3 ORDER BY seq LIMIT $4
"""
_OLDEST_EVENTS = "SELECT seq FROM events WHERE tenant = $1 AND seq <= $2 ORDER BY seq LIMIT $3"
_OLDEST_ROWS = "SELECT audit_id, at FROM audit_log WHERE tenant = $1 ORDER BY audit_id LIMIT $2"
# An enabled webhook needs the events after its cursor, and those of its pending deliveries.
_NEXT_OF_WEBHOOKS = """
SELECT MIN(cursor) + 1, MIN((SELECT MIN(d.seq) FROM webhook_deliveries d
       WHERE d.tenant = w.tenant AND d.webhook_id = w.webhook_id AND d.state = 'pending' AND d.seq > 0))
FROM webhooks w WHERE tenant = $1 AND state = 'enabled'
"""
_DELETE_DEAD_LETTERS = """
DELETE FROM webhook_deliveries WHERE tenant = $1 AND seq > 0 AND seq <= $2 AND state = 'dead'
"""
_SET_PRUNED = "UPDATE tenants SET pruned_seq = $1, pruned_at = $2 WHERE tenant = $3 AND pruned_seq < $1"
# By the oldest row of each log: one look at an index for each tenant. An event from the future has a wrong time.
_TENANTS_PAST = """
SELECT t.tenant FROM tenants t
WHERE EXISTS (SELECT 1 FROM events e WHERE e.tenant = t.tenant AND (e.at < $1 OR (e.at > $2 AND $1 > 0))
              AND e.seq = (SELECT MIN(first.seq) FROM events first WHERE first.tenant = t.tenant))
   OR EXISTS (SELECT 1 FROM audit_log a WHERE a.tenant = t.tenant AND a.at < $3
              AND a.audit_id = (SELECT MIN(first.audit_id) FROM audit_log first WHERE first.tenant = t.tenant))
ORDER BY t.tenant
"""


class PrunedEvent(NamedTuple):
    """The last event that is past retention, and its time."""

    seq: int
    at: int


class ScannedEvents(NamedTuple):
    """What a scan of the front of the log found: the last event past retention, if any, and where to scan on.

    ``position`` is None at the first event that is kept.
    """

    past: PrunedEvent | None
    position: int | None


class SqlLogRetention(SqlStore):
    """Deletes what is past retention in the logs of one tenant."""

    async def scan_events(self, before: int, now: int, after: int, limit: int, *, indexing: bool) -> ScannedEvents:
        """Look for events that are past retention, in the order of the log.

        Imported events have the times of their origin, and a clock may have been wrong: events that are imported or
        from the future are as old as the next one.
        """
        rows = await self._tx.all(_NEXT_EVENTS, self._tenant, after, await self._first_needed(indexing), limit)
        past: PrunedEvent | None = None
        for seq, at, is_own in rows:
            if not is_own or at > now:
                continue
            if at >= before:
                return ScannedEvents(past, None)
            past = PrunedEvent(seq, at)
        return ScannedEvents(past, rows[-1][0] if len(rows) == limit else None)

    async def delete_events(self, past: PrunedEvent, limit: int, *, indexing: bool) -> bool:
        """Delete the oldest events up to one; return whether there are more. None that is still needed is deleted."""
        last = min(past.seq, await self._first_needed(indexing) - 1)
        rows = await self._tx.all(_OLDEST_EVENTS, self._tenant, last, limit)
        if not rows:
            return False
        reached = rows[-1][0]
        await self._tx.run("DELETE FROM events WHERE tenant = $1 AND seq <= $2", self._tenant, reached)
        await self._tx.run(_DELETE_DEAD_LETTERS, self._tenant, reached)
        # Last, because every event that is published waits for this row.
        await self._tx.run(_SET_PRUNED, reached, past.at, self._tenant)
        return len(rows) == limit

    async def delete_audit_rows(self, before: int, now: int, limit: int) -> bool:
        """Delete the oldest audit rows that are past retention; return whether there may be more."""
        rows = await self._tx.all(_OLDEST_ROWS, self._tenant, limit)
        past: str | None = None
        for audit_id, at in rows:
            if at >= before and at <= now:
                break
            past = audit_id if at < before else past
        if past is None:
            return False
        deleted = await self._tx.changed(
            "DELETE FROM audit_log WHERE tenant = $1 AND audit_id <= $2", self._tenant, past
        )
        return deleted == limit

    async def _first_needed(self, indexing: bool) -> int:  # noqa: FBT001 - of this class only
        """Return the number of the first event that a webhook or the indexer has yet to read."""
        row = await self._tx.one(_NEXT_OF_WEBHOOKS, self._tenant)
        needed = [each for each in row or () if each is not None]
        if indexing:
            jobs = JobStore(self._tx)
            progress, reindexing = await jobs.progress(INDEXING_JOB), await jobs.progress(REINDEXING_JOB)
            needed.append(0 if progress is None else IndexCursor.of(progress).seq + 1)
            # It reads the log backwards.
            needed += [] if reindexing is None else [0]
        return min(needed, default=_END)


async def tenants_past_retention(
    transaction: Transaction, events_before: int, audit_before: int, now: int
) -> list[str]:
    """Return the tenants whose logs begin with something that is past retention; 0: kept forever."""
    rows = await transaction.all(_TENANTS_PAST, events_before, now, audit_before)
    return [row[0] for row in rows]
