"""Ingestion: reads, chunks and embeds documents outside of transactions, several at a time, each under a lease."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec import structs

from weftline.access.sql import AccessStore
from weftline.indexing.text_analysis import index_terms
from weftline.insight.alerts.service import Alerts
from weftline.jobs.runner import attempt, renewing
from weftline.jobs.scheduler import Work, long_share
from weftline.jobs.vectors import ModelVectors
from weftline.kernel.errors import Unavailable, WeftlineError
from weftline.kernel.events import TENANT_SUBJECT
from weftline.kernel.fair_queue import FairSlots
from weftline.kernel.fields import new_id
from weftline.kernel.identity import system_actor
from weftline.kernel.job_store import JobStore, Progress
from weftline.kernel.thread_pools import CALLER, DOCUMENT_THREADS
from weftline.knowledge.document_scan import blocked_reason, needs_review, scan_document
from weftline.knowledge.document_text import build_chunks, lay_out
from weftline.knowledge.ingestion import EmbeddedBatch, IngestTransaction
from weftline.knowledge.sql import (
    DomainStore,
    QueuedDocument,
    documents_pending,
    domains_to_evaluate,
    release_all,
    tenants_reindexing,
    tenants_with_pending,
)
from weftline.providers.document_trial import DocumentTrial
from weftline.search.domain_evaluation import evaluate
from weftline.storage.sql.database import SYSTEM, AccessChanged, Scope
from weftline.storage.sql.unit_of_work import SystemTransactions, logged_write

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from weftline.indexing.chunking.reader import DocumentReader
    from weftline.indexing.embeddings import Embeddings
    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.identity import Actor
    from weftline.kernel.ports import JobMetrics
    from weftline.kernel.transaction import Transaction
    from weftline.knowledge.document_scan import DocumentScan
    from weftline.knowledge.document_text import ChunkLayout
    from weftline.knowledge.ingestion import ClaimedDocument
    from weftline.knowledge.model import Document, Domain
    from weftline.safety.trust.scanner import ContentScanner
    from weftline.search.retriever import Retriever
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector


INGEST = "knowledge.ingest"
# Documents at work in this process, and of one tenant: enough to keep the embedder busy, few enough texts in memory,
# and always room for another tenant.
CONCURRENCY = 6
PER_TENANT = 4
# And of one participant, so that there is always room for another one of its tenant.
PER_AUTHOR = 3
# Content of this size and more is large: reading it takes seconds. Large documents take at most half of each limit and
# have a parsing slot of their own, so that small ones never wait for them.
LARGE_BYTES = 256 * 1024
_COUNT_EVERY_SECONDS = 5.0
_RELEASE_SECONDS = 5.0
# Before a document is retried for which something was unavailable.
_RETRY_MICROS = 15_000_000
_CHUNKS_AT_ONCE = 64
# Between tenant and participant in the name of a group.
_OF = "/"
_log = logging.getLogger("weftline.jobs")


class Ingestion:
    """Indexes documents of all tenants."""

    def __init__(
        self,
        database: Database,
        injector: Injector,
        embeddings: Embeddings,
        reader: DocumentReader,
        scanner: ContentScanner,
        metrics: JobMetrics,
    ) -> None:
        self._database = database
        self._embeddings = embeddings
        self._reader = reader
        self._scanner = scanner
        self._metrics = metrics
        self._trial = DocumentTrial()
        self._holder = new_id("worker")
        self._ingests = SystemTransactions(database, injector, IngestTransaction)
        self._vectors = ModelVectors()
        # One small and one large document of a tenant are parsed at a time, so that those of other tenants never all
        # wait for them; those who added documents take turns.
        self._parsing: WeakValueDictionary[tuple[str, bool], FairSlots] = WeakValueDictionary()
        self._count_at = 0.0
        self._has_claimed = False

    async def due(self, queue: JobQueue) -> list[Work]:
        """Return queued documents of the tenants whose turn it is."""
        await self._count_pending()
        tenants = await self._database.read(SYSTEM, tenants_with_pending)
        running = queue.running.values()
        return [work for tenant in queue.tenants_with_room(tenants) for work in await self._queued(tenant, running)]

    async def run(self, work: Work) -> bool:
        """Index one document, unless another process does; return whether it was claimed."""
        domain, document_id = work.item
        return await self._index(work.tenant, QueuedDocument(domain, document_id))

    async def close(self) -> None:
        """Release every document this process has claimed, so that another can continue at once."""
        if self._has_claimed:
            with contextlib.suppress(WeftlineError, TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._database.write(SYSTEM, partial(release_all, holder=self._holder))

    async def _queued(self, tenant: str, running: Collection[Work] = ()) -> list[Work]:
        """Return the oldest large and the oldest small documents, and some of other authors than most of them."""
        found: list[Work] = []

        async def look() -> None:
            for large in (True, False):
                found.extend(_work(tenant, each) for each in await self._oldest(tenant, running, large=large))

        # A tenant whose models this process does not know must not hold up the others.
        await attempt("queued documents", look(), tenant=tenant)
        return found

    async def _oldest(self, tenant: str, running: Collection[Work], *, large: bool) -> list[QueuedDocument]:
        sizes = range(LARGE_BYTES, sys.maxsize) if large else range(LARGE_BYTES)
        groups = Counter(work.group for work in running)
        long = Counter(work.group for work in running if large and work.long)
        busy = [each for each in groups if groups[each] >= PER_AUTHOR or long[each] >= long_share(PER_AUTHOR)]
        at_limit = [author for each, _, author in (group.partition(_OF) for group in busy) if each == tenant]
        queued = [*await self._ingests.read(tenant, lambda ingest: ingest.queued(2 * CONCURRENCY, sizes, at_limit))]
        crowd = [name for name, count in Counter(each.added_by for each in queued).items() if count > PER_AUTHOR]
        if len(queued) == 2 * CONCURRENCY and crowd:
            others = [*at_limit, *crowd]
            queued += await self._ingests.read(tenant, lambda ingest: ingest.queued(CONCURRENCY, sizes, others))
        return list(dict.fromkeys(queued))

    async def _count_pending(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._count_at:
            self._count_at = now + _COUNT_EVERY_SECONDS
            self._metrics.set_pending_documents(await self._database.read(SYSTEM, documents_pending, heavy=True))

    async def _index(self, tenant: str, queued: QueuedDocument) -> bool:
        CALLER.set((tenant, ""))
        self._has_claimed = True
        taken = await self._ingests.write(tenant, lambda ingest: ingest.take(queued, self._holder))
        if taken is None:
            return False
        renew = partial(IngestTransaction.renew, document=taken.document, holder=self._holder)
        async with renewing("document lease", tenant, lambda: self._ingests.write(tenant, renew)):
            try:
                await self._add_all(tenant, taken)
            except Unavailable:
                await self._release(tenant, taken.document, _RETRY_MICROS)
            except (MemoryError, OSError):
                # The server lacks memory or open files, perhaps because of this document: like an end of the process.
                await self._release(tenant, taken.document, _RETRY_MICROS, interrupted=True)
            except WeftlineError as error:
                await self._fail(tenant, taken.document, f"{error.message} {error.hint}")
            except Exception:  # noqa: BLE001 - logged; a retry would not help
                fields = {"tenant": tenant, "domain": taken.document.domain}
                _log.exception("a document could not be indexed", extra={"fields": fields})
                await self._fail(tenant, taken.document, "Something went wrong inside Weftline; its log says more.")
        return True

    async def _add_all(self, tenant: str, taken: ClaimedDocument) -> None:
        if taken.needs_trial:
            await DOCUMENT_THREADS.run(self._trial.run, taken.document, taken.domain, taken.content)
        layout, scan = await self._parsed(tenant, taken)
        if await self._is_held(tenant, taken, scan):
            return
        label = scan.label(taken.policy, taken.document.released_by if taken.document.is_released else None)
        start = taken.document.chunks_done if taken.layout_hash == layout.layout_hash else 0
        total = len(layout.pieces)
        while True:
            span = range(start, min(start + _CHUNKS_AT_ONCE, total))
            batch = await self._embedded(tenant, taken, layout, span)
            write = partial(
                IngestTransaction.write, taken=taken, holder=self._holder, layout=layout, batch=batch, label=label
            )
            outcome = await self._ingests.write(tenant, write)
            if outcome != "written":
                # If the tenant needs vectors of other models now, it is claimed again with these.
                await self._release(tenant, taken.document)
                return
            self._metrics.count_chunks(len(batch.chunks))
            start = span.stop
            if start >= total:
                self._metrics.count_document("indexed")
                return

    async def _parsed(self, tenant: str, taken: ClaimedDocument) -> tuple[ChunkLayout, DocumentScan]:
        document = taken.document
        slots = self._parsing.setdefault((tenant, document.bytes >= LARGE_BYTES), FairSlots(1))
        # In one turn: a document that is read quickly does not wait for slow ones twice.
        async with slots.hold(tenant, document.added_by):
            layout = await DOCUMENT_THREADS.run(lay_out, self._reader, document, taken.domain, taken.content)
            return layout, await DOCUMENT_THREADS.run(scan_document, self._scanner, document, layout)

    async def _is_held(self, tenant: str, taken: ClaimedDocument, scan: DocumentScan) -> bool:
        """Hold a document for review, or refuse it, if the policy demands that; return whether it does."""
        document = taken.document
        reason = blocked_reason(taken.policy, scan)
        if reason is not None:
            block = partial(IngestTransaction.block, document=document, holder=self._holder, reason=reason)
            await self._ingests.write(tenant, block)
            self._metrics.count_document("failed")
        elif needs_review(taken.policy, scan, document):
            hold = partial(IngestTransaction.quarantine, document=document, holder=self._holder, scan=scan)
            await self._ingests.write(tenant, hold)
            self._metrics.count_document("quarantined")
        else:
            return False
        return True

    async def _embedded(self, tenant: str, taken: ClaimedDocument, layout: ChunkLayout, span: range) -> EmbeddedBatch:
        chunks = await DOCUMENT_THREADS.run(build_chunks, taken.document, taken.domain, layout, span, index_terms)
        texts, digests = [chunk.embedded for chunk in chunks], [chunk.digest for chunk in chunks]
        embed = partial(self._embeddings.of_passages, tenant, texts, digests=digests, reembed=taken.reembed)
        return EmbeddedBatch(span, chunks, await self._vectors.compute(taken.models, embed))

    async def _fail(self, tenant: str, document: Document, reason: str) -> None:
        await self._ingests.write(tenant, lambda ingest: ingest.fail(document, self._holder, reason))
        self._metrics.count_document("failed")

    async def _release(
        self, tenant: str, document: Document, rest_micros: int = 0, *, interrupted: bool = False
    ) -> None:
        release = partial(IngestTransaction.release, document=document, holder=self._holder, rest_micros=rest_micros)
        await self._ingests.write(tenant, partial(release, interrupted=interrupted))


def _work(tenant: str, queued: QueuedDocument) -> Work:
    # If a process stopped while it indexed a document, this is tried alone: it may stop this one as well.
    return Work(
        tenant,
        (queued.domain, queued.document_id),
        group=f"{tenant}{_OF}{queued.added_by}",
        exclusive=queued.attempts > 0,
        long=queued.bytes >= LARGE_BYTES,
    )


# Reindexing of knowledge domains: queues their documents for ingestion a few at a time, at a limited pace.

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
        jobs, now = JobStore(transaction), self._runner.now
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

    async def _pause(self, jobs: JobStore, ingest: IngestTransaction, domain: str, progress: Progress) -> bool:
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


# Evaluation of domains: runs the example questions of a template once the documents of a domain are indexed.

EVALUATE = "knowledge.evaluate"
POLL_SECONDS = 30.0
# Of domains that every member of a tenant may see.
_LOWEST_CLEARANCE = 1


class EvaluationJob:
    """Evaluates the domains whose documents have changed, and stores the results with them."""

    def __init__(self, runner: LeaseRunner, retriever: Retriever, injector: Injector) -> None:
        self._runner = runner
        self._alerts = SystemTransactions(runner.database, injector, Alerts)
        self._retriever = retriever

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the domains to evaluate; those with documents that wait for indexing are not among them."""
        found = await self._runner.database.read(SYSTEM, domains_to_evaluate)
        return [Work(tenant, (domain,)) for tenant, domain in found]

    async def run(self, work: Work) -> None:
        (domain,) = work.item

        async def evaluate_domain(lease: Lease) -> None:
            await self._evaluate(lease, domain)

        await self._runner.run(work.tenant, EVALUATE, evaluate_domain)

    async def _evaluate(self, lease: Lease, name: str) -> None:
        async def look(transaction: Transaction) -> tuple[Domain | None, int, Actor]:
            domains, epoch = DomainStore(transaction), await AccessStore(transaction).epoch()
            actor = structs.replace(system_actor(lease.tenant), epoch=epoch or 0)
            return await domains.find(name), await domains.content_changes(name), actor

        domain, changes, actor = await lease.read(look)
        if domain is None or domain.template is None:
            return
        try:
            async with lease.renewed():
                evaluation = await evaluate(domain, domain.template, actor, self._retriever)
        except AccessChanged:
            return  # due again at the next poll
        before = None if domain.evaluation is None else domain.evaluation.score

        async def store(transaction: Transaction) -> None:
            await DomainStore(transaction).set_evaluation(name, evaluation, changes)
            await _compare(self._alerts.within(transaction), domain, before, evaluation.score)

        await lease.write(store)


async def _compare(alerts: Alerts, domain: Domain, before: float | None, score: float | None) -> None:
    """Open an alert if fewer questions find their evidence than before, until as many do again."""
    about = _alert_name(domain)
    active = await alerts.store.active("quality.dropped", TENANT_SUBJECT, about)
    bar = before if active is None else active.data["before"]
    if score is None or bar is None or score >= bar:
        await alerts.clear("quality.dropped", TENANT_SUBJECT, about=about)
    else:
        await alerts.raise_("quality.dropped", TENANT_SUBJECT, {"score": score, "before": bar}, about=about)


def _alert_name(domain: Domain) -> str:
    """Return the name of a domain in alerts, which every admin reads: of a closed one, a digest."""
    if domain.clearance <= _LOWEST_CLEARANCE:
        return f"the domain {domain.domain}"
    return f"a domain ({hashlib.sha256(domain.domain.encode()).hexdigest()[:8]})"
