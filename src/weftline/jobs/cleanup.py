"""Cleanup: expiry of board keys and memories, retention of receipts, and deferred deletion of collections.

Expiry writes tombstones, so that subscribers get an event; reads hide a key from the time it expires. Deferred deletion
removes rows in small batches, so that writers never wait for long.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from weftline.history.board_lines import session_of
from weftline.history.model import MAIN, branch_of
from weftline.indexing.collections.model import collection_domain
from weftline.indexing.collections.sql import CollectionStore
from weftline.indexing.deferred_deletions import DeferredDeletions
from weftline.jobs.runner import attempt
from weftline.jobs.scheduler import Work
from weftline.kernel.clock import DAY_MICROS, to_micros
from weftline.kernel.identity import system_actor
from weftline.knowledge.sql import DomainStore
from weftline.models.metering.proxied_calls import ProxiedCallStore, tenants_with_calls_before
from weftline.prompts.assembly.sql import ReceiptStore, tenants_to_prune
from weftline.state.board.service import Boards
from weftline.state.memory.model import scope_of
from weftline.state.memory.service import Memories
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.erasure import LINES, SESSION_ROWS, delete_line_batch, delete_session_batch
from weftline.storage.sql.history import SqlLineStore
from weftline.storage.sql.tenants import lines_to_expire
from weftline.storage.sql.unit_of_work import logged_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.indexing.deferred_deletions import PendingDeletion
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.clock import Clock
    from weftline.kernel.events import NewEvent
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector

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
        await self._database.write(Scope(tenant), lambda tx: SqlLineStore(tx).sweep())

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
        }
        return [Work(tenant) for tenant in sorted(found)]

    async def run(self, work: Work) -> bool:
        """Delete a batch; return whether there may be more."""
        before = self._before()

        async def prune(transaction: Transaction) -> bool:
            pruned = [
                await ReceiptStore(transaction).prune(before, _RECEIPT_BATCH),
                await ProxiedCallStore(transaction).prune(before, _RECEIPT_BATCH),
            ]
            return _RECEIPT_BATCH in pruned

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
