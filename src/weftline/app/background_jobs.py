"""The table of background jobs. To add a job, write its function in ``weftline.jobs`` and add an entry here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from weftline.app.approved_calls import ADVANCE, ADVANCE_EVERY_SECONDS, ADVANCE_SOON_SECONDS
from weftline.app.json_bodies import FreedMemory
from weftline.history.erasure import tenants_with_deletions
from weftline.history.object_storage import tenants_to_clear
from weftline.insight.metrics import COLLECTION_INTERVAL
from weftline.jobs import compaction, ingestion, session_indexing, source_sync, vectors, webhook_delivery, windows
from weftline.jobs.figures import (
    CONCURRENT_EVALUATIONS,
    EVALUATE_ALERTS,
    EVALUATE_EVERY_SECONDS,
    PRUNE_ALERTS,
    PRUNE_USAGE,
    ROLL_UP,
    ROLL_UP_EVERY_SECONDS,
)
from weftline.jobs.history_pruning import PRUNE
from weftline.jobs.ingestion import REINDEX
from weftline.jobs.model_migration import MIGRATE
from weftline.jobs.retention import (
    DELETE,
    EXPIRE,
    EXPIRE_EVERY_SECONDS,
    EXPIRE_SOON_SECONDS,
    PRUNE_DOCUMENTS,
    PRUNE_LOGS,
    PRUNE_RECEIPTS,
)
from weftline.jobs.scheduler import DueSource, Job, Work
from weftline.jobs.vectors import BACKFILL
from weftline.jobs.windows import AUTOSAVE
from weftline.safety.approvals.sql import tenants_with_due_approvals
from weftline.storage.sql.database import SYSTEM
from weftline.storage.sql.tenants import tenants_to_expire, tenants_to_sweep
from weftline.windows.sql import tenants_with_unsaved_windows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from weftline.app.app import App
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.transaction import Transaction

FLUSH_READ_COUNTS = "board.flush_read_counts"
FLUSH_REFUSALS = "audit.flush_refusals"
FLUSH_GUARDRAIL_HITS = "guardrails.flush_hits"
SAMPLE_METRICS = "metrics.sample"
SWEEP_EMBEDDINGS = "embeddings.sweep"
RELEASE_MODELS = "embeddings.release"
RETURN_MEMORY = "memory.return"
SWEEP_INDEXES = "search_index.sweep"
SWEEP_OBJECTS = "objects.sweep"
SWEEP_VALUES = "history.sweep"
_MINUTE = 60.0
_HOUR = 3_600.0
_DOCUMENT_DELAY_SECONDS = 0.25
_RELEASE_SECONDS = 15.0


def background_jobs(app: App) -> list[Job]:
    """Return every job of this process, with the scope process, tenant or item."""
    return [*_process_jobs(app), *_cleanup_jobs(app), *_queue_jobs(app)]


def _process_jobs(app: App) -> list[Job]:
    """Return the jobs that each process runs for itself."""
    freed = FreedMemory()
    return [
        Job(name=FLUSH_READ_COUNTS, every=5.0, run=lambda _: app.flush_read_counts()),
        Job(name=FLUSH_REFUSALS, every=5.0, run=lambda _: app.flush_refusals()),
        Job(name=FLUSH_GUARDRAIL_HITS, every=5.0, run=lambda _: app.flush_guardrail_hits()),
        Job(name=SAMPLE_METRICS, every=COLLECTION_INTERVAL, run=lambda _: app.metrics_snapshot.collect()),
        Job(name=SWEEP_INDEXES, every=_HOUR, run=lambda _: app.collections.sweep()),
        Job(name=SWEEP_EMBEDDINGS, every=_HOUR, run=lambda _: app.embeddings.sweep()),
        Job(name=RETURN_MEMORY, every=2.0, run=lambda _: freed.give_back()),
        Job(name=RELEASE_MODELS, every=_RELEASE_SECONDS, run=lambda _: _release_models(app)),
    ]


async def _release_models(app: App) -> None:
    seconds = app.settings.embedding_idle_seconds
    if seconds:
        await app.embeddings.release_idle(seconds)
    classifier = sys.modules.get("weftline.encoder.classifier")
    if seconds and classifier is not None:
        classifier.CLASSIFIER.release_idle(seconds)


def _cleanup_jobs(app: App) -> list[Job]:
    """Return the jobs that remove, by tenant, what is no longer needed, save windows and backfill vectors."""
    return [
        Job(
            name=EXPIRE,
            every=lambda: EXPIRE_SOON_SECONDS if app.feed.is_followed else EXPIRE_EVERY_SECONDS,
            due=_tenants(app, lambda tx: tenants_to_expire(tx, app.lease_runner.now)),
            run=lambda work: app.expiry.expire(work.tenant),
            concurrency=2,
        ),
        Job(
            name=SWEEP_VALUES,
            every=EXPIRE_EVERY_SECONDS,
            due=_tenants(app, tenants_to_sweep),
            run=lambda work: app.expiry.sweep(work.tenant),
        ),
        Job(
            name=ADVANCE,
            every=lambda: ADVANCE_SOON_SECONDS if app.held_calls.decisions.count else ADVANCE_EVERY_SECONDS,
            due=_tenants(app, lambda tx: tenants_with_due_approvals(tx, app.lease_runner.now)),
            run=lambda work: app.approved_calls.advance(work.tenant),
            concurrency=4,
        ),
        Job(name=PRUNE_LOGS, every=_HOUR, due=app.log_retention.due, run=app.log_retention.run),
        Job(name=PRUNE_ALERTS, every=_HOUR, due=app.alerts.due_to_prune, run=app.alerts.prune),
        Job(name=PRUNE_DOCUMENTS, every=_HOUR, due=app.document_retention.due, run=app.document_retention.run),
        Job(name=PRUNE_RECEIPTS, every=_HOUR, due=app.receipt_pruning.due, run=app.receipt_pruning.run),
        Job(name=PRUNE_USAGE, every=_HOUR, due=app.usage_rollup.prune_due, run=app.usage_rollup.prune),
        Job(
            name=SWEEP_OBJECTS,
            every=EXPIRE_EVERY_SECONDS,
            due=_tenants(app, lambda tx: tenants_to_clear(tx, app.lease_runner.now)),
            run=lambda work: app.objects.sweep(work.tenant),
        ),
        Job(
            name=AUTOSAVE,
            every=_MINUTE,
            due=_tenants(app, lambda tx: tenants_with_unsaved_windows(tx, app.autosave.due_before)),
            run=lambda work: app.autosave.run(work.tenant),
        ),
        Job(
            name=PRUNE,
            every=_MINUTE,
            due=_each(lambda: app.lease_runner.tenants_due(PRUNE)),
            run=lambda work: app.pruner.run(work.tenant),
        ),
        Job(
            name=BACKFILL,
            every=_MINUTE,
            due=_each(lambda: app.lease_runner.tenants_due(BACKFILL)),
            run=lambda work: app.vector_backfill.run(work.tenant),
        ),
        Job(
            name=DELETE,
            every=5.0,
            due=_tenants(app, tenants_with_deletions),
            run=lambda work: app.deferred_deletion.run(work.tenant),
        ),
    ]


def _queue_jobs(app: App) -> list[Job]:
    """Return the jobs that work through queues: migrations, documents, sources, deliveries, sessions."""
    return [
        Job(
            name=MIGRATE,
            every=5.0,
            due=app.model_migrations.due,
            run=lambda work: app.model_migrations.run(work.tenant),
            concurrency=4,
        ),
        Job(
            name=REINDEX,
            every=lambda: app.reindexing.poll_seconds,
            on_events=lambda _: _DOCUMENT_DELAY_SECONDS,
            due=app.reindexing.due,
            run=lambda work: app.reindexing.run(work.tenant),
        ),
        Job(
            name=ingestion.INGEST,
            every=30.0,
            on_events=lambda _: _DOCUMENT_DELAY_SECONDS,
            due=app.ingestion.due,
            run=app.ingestion.run,
            concurrency=ingestion.CONCURRENCY,
            per_tenant=ingestion.PER_TENANT,
            per_group=ingestion.PER_AUTHOR,
        ),
        Job(
            name=ingestion.EVALUATE,
            every=ingestion.POLL_SECONDS,
            on_events=lambda _: _DOCUMENT_DELAY_SECONDS,
            due=app.domain_evaluation.due,
            run=app.domain_evaluation.run,
        ),
        Job(
            name=source_sync.SYNC,
            every=lambda: app.source_sync.poll_seconds,
            due=app.source_sync.due,
            run=app.source_sync.run,
            concurrency=source_sync.CONCURRENCY,
            per_tenant=source_sync.PER_TENANT,
        ),
        Job(
            name=webhook_delivery.DELIVER,
            every=webhook_delivery.POLL_SECONDS,
            on_events=app.webhooks.poll_after,
            due=app.webhooks.due,
            run=app.webhooks.run,
            concurrency=webhook_delivery.CONCURRENCY,
            per_tenant=webhook_delivery.PER_TENANT,
            per_group=webhook_delivery.PER_HOST,
        ),
        Job(
            name=compaction.COMPACT,
            every=compaction.POLL_SECONDS,
            due=app.compaction.due,
            run=app.compaction.perform,
            concurrency=compaction.CONCURRENCY,
            per_tenant=compaction.PER_TENANT,
        ),
        Job(
            name=windows.READ,
            every=windows.POLL_SECONDS,
            due=app.message_reading.due,
            run=app.message_reading.run,
        ),
        Job(name=ROLL_UP, every=ROLL_UP_EVERY_SECONDS, due=app.usage_rollup.due, run=app.usage_rollup.run),
        Job(
            name=EVALUATE_ALERTS,
            every=EVALUATE_EVERY_SECONDS,
            due=app.alerts.due,
            run=app.alerts.evaluate,
            concurrency=CONCURRENT_EVALUATIONS,
        ),
        Job(
            name=session_indexing.INDEX,
            every=lambda: app.session_indexing.poll_seconds,
            on_events=lambda _: session_indexing.EVENT_DELAY_SECONDS,
            due=app.session_indexing.due,
            run=lambda work: app.session_indexing.run(work.tenant),
            concurrency=session_indexing.CONCURRENCY,
        ),
        Job(
            name=vectors.EMBED,
            every=30.0,
            due=app.session_vectors.due,
            run=lambda work: app.session_vectors.run(work.tenant),
            concurrency=vectors.CONCURRENCY,
        ),
    ]


def _tenants(app: App, find: Callable[[Transaction], Awaitable[Iterable[str]]]) -> DueSource:
    """Return a due source of the tenants that a query finds."""
    return _each(lambda: app.database.read(SYSTEM, find))


def _each(find: Callable[[], Awaitable[Iterable[str]]]) -> DueSource:
    """Return a due source of one piece of work per tenant."""

    async def due(_queue: JobQueue) -> list[Work]:
        return [Work(tenant) for tenant in await find()]

    return due
