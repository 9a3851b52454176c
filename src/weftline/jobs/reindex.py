"""Reindexing of knowledge domains: queues their documents for ingestion a few at a time, at a limited pace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.jobs.scheduler import Work
from weftline.kernel.fields import new_id
from weftline.kernel.ports import Progress
from weftline.knowledge.ingestion import IngestTransaction
from weftline.knowledge.sql import tenants_reindexing
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.jobs import SqlJobStore
from weftline.storage.sql.unit_of_work import SystemTransactions, logged_write

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.jobs.runner import LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.unit_of_work import Injector

REINDEX = "knowledge.reindex"
_POLL_SECONDS = 30.0
_POLL_SOON_SECONDS = 0.5
_SECOND = 1_000_000
# Limits the pause after a batch that took long because something was unavailable.
_MAX_PAUSE = 10 * _SECOND


class DomainReindexing:
    """Queues the documents of domains that are reindexed.

    The pace is kept in the database, so it does not depend on the number of processes.
    """

    def __init__(
        self, runner: LeaseRunner, injector: Injector, chunks_per_second: int, on_queued: Callable[[], None]
    ) -> None:
        self._runner = runner
        self._rate = chunks_per_second
        self._on_queued = on_queued
        self._holder = new_id("worker")
        self._ingests = SystemTransactions(runner.database, injector, IngestTransaction)
        self.poll_seconds = _POLL_SECONDS

    async def due(self, _queue: JobQueue) -> list[Work]:
        tenants = await self._runner.database.read(SYSTEM, tenants_reindexing)
        self.poll_seconds = _POLL_SOON_SECONDS if tenants else _POLL_SECONDS
        return [Work(tenant) for tenant in tenants]

    async def run(self, tenant: str) -> None:
        while await logged_write(self._runner.database, Scope(tenant), self._step):
            pass
        self._on_queued()

    async def _step(self, transaction: Transaction) -> bool:
        """Queue the next documents, or pause after them; return whether another step can follow at once."""
        jobs, now = SqlJobStore(transaction), self._runner.now
        progress = await jobs.claim(REINDEX, self._holder, now, now, due_by=now)
        ingest = self._ingests.within(transaction)
        domain = next(iter(await ingest.domains.reindexing()), None)
        if progress is None or domain is None:
            return False
        if progress.cursor:
            return await self._pause(jobs, ingest, domain, progress)
        chunks = await ingest.requeue(domain)
        await jobs.save(REINDEX, Progress(str(now), str(chunks)) if chunks else Progress())
        return not chunks

    async def _pause(self, jobs: SqlJobStore, ingest: IngestTransaction, domain: str, progress: Progress) -> bool:
        """Set when the next documents are queued, once those before are indexed; return whether that is now."""
        if (await ingest.documents.requeued(domain)).documents:
            return False
        began, now = int(progress.cursor), ingest.now
        until = now + min(now - began, _MAX_PAUSE)
        if self._rate:
            until = began + int(progress.done) * _SECOND // self._rate
        await jobs.save(REINDEX, Progress())
        await jobs.release(REINDEX, until)
        return until <= now
