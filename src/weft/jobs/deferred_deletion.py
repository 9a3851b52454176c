"""Clearing away what was deleted: very many rows go a few at a time, so that nobody who writes waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.capabilities.indexing.collections.model import collection_domain
from weft.jobs.lease import Lease
from weft.jobs.periodic import attempt, every
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.deferred_deletions import SqlClearings, tenants_clearing
from weft.storage.sql.knowledge import SqlDomainStore

if TYPE_CHECKING:
    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction
    from weft.storage.sql.deferred_deletions import Deleted

_WORK = "collections.clear"
_LOOK_EVERY_SECONDS = 5.0


class DeferredDeletion:
    """Clears away what was deleted, of every tenant, in this process while no other does the same."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        # How long to rest after work, as a multiple of the time it took: others write too.
        self.rest = 1.0

    async def run(self) -> None:
        """Clear away what is deleted, for as long as the process lives."""
        await every(_LOOK_EVERY_SECONDS, "clearing", self.look)

    async def look(self) -> None:
        """Clear away everything that was deleted so far."""
        for tenant in await self._database.read(SYSTEM, tenants_clearing):
            lease = Lease(self._database, self._clock, tenant, _WORK)
            await attempt("clearing", lease.do(self._clear), tenant=tenant)

    async def _clear(self, lease: Lease) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while await lease.write(_clear_some):
            await asyncio.sleep((loop.time() - started) * self.rest)
            started = loop.time()


async def _clear_some(transaction: Transaction) -> bool:
    """Clear a few rows away; tell whether there was something to do."""
    clearings = SqlClearings(transaction)
    deleted = await clearings.next()
    if deleted is None:
        return False
    if not await _has_more(transaction, deleted):
        await clearings.drop(deleted)
    return True


async def _has_more(transaction: Transaction, deleted: Deleted) -> bool:
    collections = SqlCollectionStore(transaction)
    if deleted.place:
        return await collections.clear_place(*deleted)
    domain = collection_domain(deleted.collection)
    documents = domain is not None and await SqlDomainStore(transaction).clear(domain)
    return await collections.clear(deleted.collection) or documents
