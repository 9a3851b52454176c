"""Retention of documents: deletes those that are older than the template of their domain allows, in small batches."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from weftline.jobs.log_retention import judged_time
from weftline.jobs.scheduler import Work
from weftline.knowledge.documents import Documents
from weftline.knowledge.sql import expired_documents, tenants_with_expired_documents
from weftline.storage.sql.database import SYSTEM
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.unit_of_work import Injector

PRUNE_DOCUMENTS = "knowledge.prune"
_BATCH = 20


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
        expired = await expired_documents(transaction, now, _BATCH)
        documents = self._documents.within(transaction)
        for domain, document_id in expired:
            await documents.remove(domain, document_id)
        return len(expired) == _BATCH
