"""Deferred deletion: removes the rows of deleted collections in small batches, so that writers never wait for long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.capabilities.indexing.collections.model import collection_domain
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.deferred_deletions import SqlClearings
from weft.storage.sql.knowledge import SqlDomainStore

if TYPE_CHECKING:
    from weft.jobs.runner import Lease, LeaseRunner
    from weft.storage.sql.database import Transaction
    from weft.storage.sql.deferred_deletions import Deleted

DELETE = "collections.delete"


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
    pending = SqlClearings(transaction)
    deleted = await pending.next()
    if deleted is None:
        return False
    if not await _has_more(transaction, deleted):
        await pending.drop(deleted)
    return True


async def _has_more(transaction: Transaction, deleted: Deleted) -> bool:
    collections = SqlCollectionStore(transaction)
    if deleted.place:
        return await collections.clear_place(*deleted)
    domain = collection_domain(deleted.collection)
    documents = domain is not None and await SqlDomainStore(transaction).clear(domain)
    return await collections.clear(deleted.collection) or documents
