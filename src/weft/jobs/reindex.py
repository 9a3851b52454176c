"""Having documents indexed anew, a few at a time: no faster than is allowed, and resting as long as it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.knowledge.ingestion import Ingest
from weft.jobs.periodic import attempt
from weft.kernel.clock import to_micros
from weft.kernel.ids import new_id
from weft.kernel.jobs import Progress
from weft.storage.sql.database import SYSTEM, Scope
from weft.storage.sql.jobs import SqlJobStore
from weft.storage.sql.knowledge import tenants_reindexing
from weft.storage.sql.unit_of_work import SystemTransactions, logged_write

if TYPE_CHECKING:
    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction
    from weft.storage.sql.unit_of_work import Injector

_WORK = "knowledge.reindex"
_SECOND = 1_000_000
# Something may have been away for long: that is no reason to rest as long.
_LONGEST_REST = 10 * _SECOND


class Reindexing:
    """Puts documents of domains that are reindexed among those that wait, for every tenant at its own pace.

    The pace is kept in the database, so it is the same however many processes there are.
    """

    def __init__(self, database: Database, clock: Clock, injector: Injector, chunks_a_second: int) -> None:
        self._database = database
        self._clock = clock
        self._rate = chunks_a_second
        self._holder = new_id("worker")
        self._ingests = SystemTransactions(database, injector, Ingest)

    async def look(self) -> bool:
        """Go on with what can go on now; tell whether there is anything to be reindexed."""
        tenants = await self._database.read(SYSTEM, tenants_reindexing)
        for tenant in tenants:
            await attempt("reindexing", self._go_on(tenant), tenant=tenant)
        return bool(tenants)

    async def _go_on(self, tenant: str) -> None:
        while await logged_write(self._database, Scope(tenant), self._step):
            pass

    async def _step(self, transaction: Transaction) -> bool:
        """Do what is next, unless another process does; tell whether something can be done right after it."""
        jobs, now = SqlJobStore(transaction), to_micros(self._clock.now())
        standing = await jobs.claim(_WORK, self._holder, now, now, due_by=now)
        ingest = self._ingests.within(transaction)
        domain = next(iter(await ingest.domains.reindexing()), None)
        if standing is None or domain is None:
            return False
        if standing.cursor:
            return await self._rest(jobs, ingest, domain, standing)
        chunks = await ingest.requeue(domain)
        await jobs.save(_WORK, Progress(str(now), str(chunks)) if chunks else Progress())
        return not chunks

    async def _rest(self, jobs: SqlJobStore, ingest: Ingest, domain: str, standing: Progress) -> bool:
        """Let time pass once everything is indexed that was put among what waits."""
        if (await ingest.documents.requeued(domain)).documents:
            return False
        began, now = int(standing.cursor), ingest.now
        until = now + min(now - began, _LONGEST_REST)
        if self._rate:
            until = began + int(standing.done) * _SECOND // self._rate
        await jobs.save(_WORK, Progress())
        await jobs.release(_WORK, until)
        return until <= now
