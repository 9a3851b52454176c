"""Jobs that remove what is too old: events, audit rows, documents, versions, receipts, and rows of what was deleted."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from weftline.history.erasure import LINES, DeferredDeletions, delete_line_batch
from weftline.history.line_kinds import session_of
from weftline.history.lines import LineStore
from weftline.history.model import MAIN, branch_of
from weftline.indexing.collections import collection_domain
from weftline.indexing.sql import CollectionStore
from weftline.jobs.runner import attempt
from weftline.jobs.scheduler import Work
from weftline.kernel.clock import DAY_MICROS, to_micros
from weftline.kernel.identity import system_actor
from weftline.kernel.job_store import JobStore, Progress
from weftline.knowledge.documents import Documents
from weftline.knowledge.sql import DomainStore, expired_documents, tenants_with_expired_documents
from weftline.models.proxied_calls import ProxiedCallStore, tenants_with_calls_before
from weftline.prompts.assembly.sql import ReceiptStore, tenants_to_prune
from weftline.sessions.erasure import SESSION_ROWS, delete_session_batch
from weftline.state.board.service import Boards
from weftline.state.memory.model import scope_of
from weftline.state.memory.service import Memories
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.log_retention import SqlLogRetention, tenants_past_retention
from weftline.storage.sql.tenants import lines_to_expire
from weftline.storage.sql.unit_of_work import SystemTransactions, logged_write
from weftline.windows.conversations.sql import EditStore, tenants_with_answers_before

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weftline.history.erasure import PendingDeletion
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.clock import Clock
    from weftline.kernel.events import NewEvent
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.log_retention import PrunedEvent, ScannedEvents
    from weftline.storage.sql.unit_of_work import Injector


# Cleanup: expiry of board keys and memories, retention of receipts, and deferred deletion of collections.
#
# Expiry writes tombstones, so that subscribers get an event; reads hide a key from the time it expires. Deferred
# deletion removes rows in small batches, so that writers never wait for long.

DELETE = "collections.delete"
EXPIRE = "keys.expire"
PRUNE_RECEIPTS = "receipts.prune"
# While a subscriber waits for events.
EXPIRE_SOON_SECONDS = 0.5
# Otherwise, so that expired values do not stay in the database for long.
EXPIRE_EVERY_SECONDS = 30
_BATCH = 200
_RECEIPT_BATCH = 100


class Expiry:
    """Turns expired keys of a tenant into tombstones and events."""

    def __init__(self, database: Database, clock: Clock, injector: Injector) -> None:
        self._database = database
        self._clock = clock
        self._injector = injector

    async def expire(self, tenant: str) -> bool:
        """Expire the longest overdue keys; return whether there may be more."""
        now = to_micros(self._clock.now())
        lines = await self._database.read(Scope(tenant), lambda tx: lines_to_expire(tx, now, _BATCH))
        # A line that was closed or deleted meanwhile, or cannot be read, must not hold up the others.
        done = [
            await attempt(EXPIRE, self._expire_line(tenant, line_id), tenant=tenant, line=line_id) for line_id in lines
        ]
        return len(done) == _BATCH and any(done)

    async def sweep(self, tenant: str) -> None:
        """Delete unreferenced values that two transactions released at the same time, so that neither deleted them."""
        await self._database.write(Scope(tenant), lambda tx: LineStore(tx).sweep())

    async def _expire_line(self, tenant: str, line_id: str) -> None:
        await logged_write(self._database, Scope(tenant), partial(self._expire_entries, line_id))

    async def _expire_entries(self, line_id: str, transaction: Transaction) -> Sequence[NewEvent]:
        # Idempotent: another process may have done it meanwhile.
        actor = system_actor(transaction.tenant)
        memory = scope_of(line_id)
        if memory is None:
            # Opening a board for writing expires its keys.
            boards = self._injector.build(Boards, actor, transaction)
            await boards.to_write(session_of(line_id), branch_of(line_id) or MAIN)
        else:
            await self._injector.build(Memories, actor, transaction).expire_entries(memory)
        return transaction.published


class ReceiptPruning:
    """Deletes receipts that are past retention, with the texts that only they have."""

    def __init__(self, database: Database, clock: Clock, days: int) -> None:
        self._database = database
        self._clock = clock
        self._days = days

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants that have such receipts."""
        if not self._days:
            return []
        before = self._before()
        found = {
            *await self._database.read(SYSTEM, partial(tenants_to_prune, before)),
            *await self._database.read(SYSTEM, partial(tenants_with_calls_before, before)),
            *await self._database.read(SYSTEM, partial(tenants_with_answers_before, before)),
        }
        return [Work(tenant) for tenant in sorted(found)]

    async def run(self, work: Work) -> bool:
        """Delete a batch; return whether there may be more."""
        before = self._before()

        async def prune(transaction: Transaction) -> bool:
            pruned = [
                await ReceiptStore(transaction).prune(before, _RECEIPT_BATCH),
                await ProxiedCallStore(transaction).prune(before, _RECEIPT_BATCH),
                await EditStore(transaction).prune_answers(before, _RECEIPT_BATCH),
                await EditStore(transaction).prune_unrecorded(before, _RECEIPT_BATCH),
            ]
            return max(pruned) >= _RECEIPT_BATCH

        return await self._database.write(Scope(work.tenant), prune)

    def _before(self) -> int:
        return to_micros(self._clock.now()) - self._days * DAY_MICROS


class DeferredDeletion:
    """Deletes what a tenant has deleted, batch by batch."""

    def __init__(self, runner: LeaseRunner) -> None:
        self._runner = runner

    async def run(self, tenant: str) -> None:
        await self._runner.run(tenant, DELETE, self._delete_all)

    async def _delete_all(self, lease: Lease) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while await lease.write(_delete_batch):
            await lease.rest(started)
            started = loop.time()


async def _delete_batch(transaction: Transaction) -> bool:
    """Delete some rows; False if there were none."""
    pending = DeferredDeletions(transaction)
    deleted = await pending.next()
    if deleted is None:
        return False
    if not await _has_more(transaction, deleted):
        await pending.drop(deleted)
    return True


async def _has_more(transaction: Transaction, deleted: PendingDeletion) -> bool:
    if deleted.collection == LINES:
        return await delete_line_batch(transaction, deleted.place)
    if deleted.collection == SESSION_ROWS:
        return await delete_session_batch(transaction, deleted.place)
    collections = CollectionStore(transaction)
    if deleted.place:
        return await collections.delete_place_batch(*deleted)
    domain = collection_domain(deleted.collection)
    documents = domain is not None and await DomainStore(transaction).clear(domain)
    return await collections.delete_batch(deleted.collection) or documents


# Retention of events and audit rows: one job deletes what is older than the settings say, in small batches.

PRUNE_LOGS = "logs.prune"
_SCAN = 2_000
# Scanned before anything is deleted.
_MAX_SCANNED = 20_000


class LogDays(NamedTuple):
    """Days for which events and audit rows are kept; 0: forever."""

    events: int
    audit: int


class LogRetention:
    """Deletes events and audit rows that are past retention."""

    def __init__(self, runner: LeaseRunner, days: LogDays, *, indexing: bool) -> None:
        self._runner = runner
        self._days = days
        self._indexing = indexing

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants that may have something to delete."""
        if not any(self._days):
            return []
        now = self._runner.now
        before = (_cutoff(now, self._days.events), _cutoff(now, self._days.audit))
        tenants = await self._runner.database.read(SYSTEM, lambda tx: tenants_past_retention(tx, *before, now))
        return [Work(tenant) for tenant in tenants]

    async def run(self, work: Work) -> None:
        await self._runner.run(work.tenant, PRUNE_LOGS, self._prune)

    async def _prune(self, lease: Lease) -> None:
        now = await lease.advance(partial(judged_time, PRUNE_LOGS, self._runner.now))
        if self._days.events:
            await self._prune_events(lease, _cutoff(now, self._days.events), now)
        if self._days.audit:
            before = _cutoff(now, self._days.audit)
            await _repeat(lease, lambda tx: SqlLogRetention(tx).delete_audit_rows(before, now, _BATCH))

    async def _prune_events(self, lease: Lease, before: int, now: int) -> None:
        position: int | None = 0
        while position is not None:
            past, position = await self._scan(lease, before, now, position)
            if past is None:
                return
            await _repeat(lease, partial(self._delete, past))

    async def _delete(self, past: PrunedEvent, transaction: Transaction) -> bool:
        return await SqlLogRetention(transaction).delete_events(past, _BATCH, indexing=self._indexing)

    async def _scan(self, lease: Lease, before: int, now: int, after: int) -> tuple[PrunedEvent | None, int | None]:
        """Return the last of the next events that are past retention, and where to scan on."""
        past, position, scanned = None, after, 0
        while True:
            found = await lease.read(partial(self._scan_page, before, now, position))
            past = found.past or past
            scanned += _SCAN
            if found.position is None or (past is not None and scanned >= _MAX_SCANNED):
                return past, found.position
            position = found.position

    async def _scan_page(self, before: int, now: int, after: int, transaction: Transaction) -> ScannedEvents:
        return await SqlLogRetention(transaction).scan_events(before, now, after, _SCAN, indexing=self._indexing)


async def judged_time(job: str, clock: int, transaction: Transaction, progress: Progress) -> int:
    """Return the time by which a retention job judges.

    It is at most a day later than at the last run, so that a clock that was wrong for a while deletes little.
    """
    last = int(progress.cursor or 0)
    now = min(clock, last + DAY_MICROS) if last else clock
    await JobStore(transaction).save(job, Progress(str(now)))
    return now


async def _repeat(lease: Lease, step: Callable[[Transaction], Awaitable[bool]]) -> None:
    """Do a step until it has nothing more to do, with pauses for other work."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while await lease.write(step):
        await lease.rest(started)
        started = loop.time()


def _cutoff(now: int, days: int) -> int:
    """Return the time before which rows are past retention; 0 if they are kept forever."""
    return max(1, now - days * DAY_MICROS) if days else 0


# Retention of documents: deletes those that are older than the template of their domain allows, in small batches.

PRUNE_DOCUMENTS = "knowledge.prune"
_DOCUMENTS_BATCH = 20


class DocumentRetention:
    """Deletes documents that are past the retention of their domain."""

    def __init__(self, runner: LeaseRunner, injector: Injector) -> None:
        self._runner = runner
        self._documents = SystemTransactions(runner.database, injector, Documents)

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the tenants with such documents."""
        find = partial(tenants_with_expired_documents, now=self._runner.now)
        return [Work(tenant) for tenant in await self._runner.database.read(SYSTEM, find, heavy=True)]

    async def run(self, work: Work) -> None:
        await self._runner.run(work.tenant, PRUNE_DOCUMENTS, self._prune)

    async def _prune(self, lease: Lease) -> None:
        now = await lease.advance(partial(judged_time, PRUNE_DOCUMENTS, self._runner.now))
        loop = asyncio.get_running_loop()
        started = loop.time()
        while await lease.write(partial(self._delete, now)):
            await lease.rest(started)
            started = loop.time()

    async def _delete(self, now: int, transaction: Transaction) -> bool:
        """Delete a batch; return whether there may be more."""
        expired = await expired_documents(transaction, now, _DOCUMENTS_BATCH)
        documents = self._documents.within(transaction)
        for domain, document_id in expired:
            await documents.remove(domain, document_id)
        return len(expired) == _DOCUMENTS_BATCH
