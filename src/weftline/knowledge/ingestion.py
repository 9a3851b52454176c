"""Indexes a document in several transactions, each of which leaves it consistent.

Chunks of a new version are written in batches, while searches find the old version. The last batch switches to the new
version and deletes the old chunks. Each batch stores the progress, so that another process can resume after a crash
without adding a chunk twice or leaving one out. The whole text is scanned before the first batch, also by a process
that resumes, so that nothing of a document is indexed that was not scanned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import structs

from weftline.access.plan_warnings import Plans
from weftline.indexing.collections import NewChunk, domain_collection
from weftline.indexing.embeddings import (
    Embeddings,
    TenantModelStore,
    has_required_models,
    is_semantic,
    known_models_to_fill,
)
from weftline.indexing.model_migration import models_in_use
from weftline.indexing.sql import CollectionStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.identity import Actor
from weftline.kernel.outbox import Outbox
from weftline.kernel.ports import LEASE_MICROS
from weftline.knowledge.document_review import DocumentHolds, hold_reason
from weftline.knowledge.document_scan import DocumentScan
from weftline.knowledge.document_text import ChunkLayout
from weftline.knowledge.documents import document_event
from weftline.knowledge.domains import domain_event
from weftline.knowledge.model import Document, Domain, Quarantine
from weftline.knowledge.sql import DocumentStore, DomainStore, QueuedDocument
from weftline.safety.trust.model import TrustLabel, TrustPolicies, TrustPolicy

# Processes that stopped while they indexed a document before it has to pass a trial in a process of its own: then
# it may be the cause. A document is never given up for it: processes are stopped for many reasons.
TRIAL_AFTER = 2
_REQUEUE_BATCH = 20
_MAX_REASON = 500

# lost: the lease ended or the document changed; other_models: the tenant needs vectors of other models.
WriteOutcome = Literal["written", "lost", "other_models"]


class ClaimedDocument(NamedTuple):
    """A leased document with its progress and content, and the models that its chunks need vectors of, if any.

    ``policy`` is the tenant's trust policy at that time. ``attempts`` counts the processes that stopped while they
    indexed it.
    """

    document: Document
    domain: Domain
    layout_hash: str
    content: bytes
    models: tuple[str, ...]
    policy: TrustPolicy
    attempts: int = 0

    @property
    def needs_trial(self) -> bool:
        """Whether it may be the reason why processes stopped."""
        return self.attempts >= TRIAL_AFTER

    @property
    def reembed(self) -> bool:
        """Whether cached vectors must not be used."""
        return self.domain.reembed and self.document.is_reindexed


class EmbeddedBatch(NamedTuple):
    """Consecutive chunks with their vectors, by model."""

    span: range
    chunks: Sequence[NewChunk]
    vectors: Mapping[str, Sequence[bytes]]


class IngestTransaction(msgspec.Struct, frozen=True):
    """The steps of indexing, each in one transaction."""

    actor: Actor
    domains: DomainStore
    plans: Plans
    documents: DocumentStore
    collections: CollectionStore
    models: TenantModelStore
    embeddings: Embeddings
    policies: TrustPolicies
    holds: DocumentHolds
    outbox: Outbox
    clock: Clock

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def queued(self, limit: int, sizes: range, not_of: Sequence[str] = ()) -> Sequence[QueuedDocument]:
        """Return the next queued documents of these sizes; an error if this process lacks the tenant's models."""
        queued = await self.documents.queued(self.now, limit, sizes, not_of)
        if queued and await is_semantic(self.models, self.embeddings):
            await self._models()
        return queued

    async def take(self, queued: QueuedDocument, holder: str) -> ClaimedDocument | None:
        """Lease a document; None if another process has it or there is nothing to do."""
        models = await self._models() if await is_semantic(self.models, self.embeddings) else ()
        domain = await self.domains.find_shared(queued.domain)
        now = self.now
        held = await self.documents.claim(queued.domain, queued.document_id, holder, now, now + LEASE_MICROS)
        if domain is None or held is None:
            return None
        document = held.document
        kept = await self.documents.content(document.domain, document.document_id, document.content_version)
        if kept is None:
            return None
        policy = await self.policies.current()
        return ClaimedDocument(document, domain, held.layout_hash, kept.content, models, policy, held.attempts)

    async def renew(self, document: Document, holder: str) -> bool:
        """Extend a lease; False if it is lost or the document has changed."""
        return await self._leased(document, holder) is not None

    async def write(
        self, taken: ClaimedDocument, holder: str, layout: ChunkLayout, batch: EmbeddedBatch, label: TrustLabel | None
    ) -> WriteOutcome:
        """Write a batch of chunks; the last one makes the version the indexed one, with its label."""
        total, growth = len(layout.pieces), _growth(taken.document, layout)
        is_last = batch.span.stop >= total
        document = await self._leased(taken.document, holder, to_count=is_last and growth != 0)
        if document is None:
            return "lost"
        if batch.span.start == 0 and growth > 0:
            await self._check_quota(growth)
        needed = await models_in_use(self.models, self.embeddings.models(), self.now)
        if taken.models and not has_required_models(batch.vectors, needed):
            return "other_models"
        if document.chunks_done > batch.span.start:
            await self._delete_unfinished(document)
        await self.collections.add(domain_collection(document.domain), batch.chunks, batch.vectors)
        if is_last:
            await self._finish(document, layout, label)
        else:
            await self.documents.advance(
                document.domain, document.document_id, done=batch.span.stop, total=total, layout_hash=layout.layout_hash
            )
        return "written"

    async def block(self, document: Document, holder: str, reason: str) -> None:
        """Refuse a version. If the indexed version has the same content, searches no longer find it."""
        leased = await self._leased(document, holder)
        if leased is not None:
            await self._unindex(leased)
            await self.fail(document, holder, reason)

    async def fail(self, document: Document, holder: str, reason: str) -> None:
        """Store that indexing failed, and why; searches still find the previously indexed version."""
        if await self._leased(document, holder) is None:
            return
        await self._delete_unfinished(document)
        shown = reason.replace("\x00", "")[:_MAX_REASON]
        await self.documents.fail(document.domain, document.document_id, shown)
        domain = await self.domains.find(document.domain)
        if domain is not None:
            await self.outbox.publish(document_event("document.failed", domain, document, self.actor.participant))

    async def quarantine(self, document: Document, holder: str, scan: DocumentScan) -> None:
        """Hold a version for review. If the indexed version has the same content, searches no longer find it."""
        leased = await self._leased(document, holder)
        if leased is None:
            return
        domain = await self.domains.find(document.domain)
        assert domain is not None  # noqa: S101 - a document that is held is in a domain
        await self._unindex(leased)
        held = Quarantine(len(scan.flagged), scan.shown, self.now)
        approval_id = await self.holds.open(leased, hold_reason(leased, held))
        await self.documents.quarantine(leased, structs.replace(held, approval_id=approval_id))
        event = document_event("document.quarantined", domain, leased, self.actor.participant, passages=held.flagged)
        await self.outbox.publish(event)

    async def release(
        self, document: Document, holder: str, rest_micros: int = 0, *, interrupted: bool = False
    ) -> None:
        """End a lease; the document is not leased again for ``rest_micros``.

        ``interrupted``: the attempt counts like one that ended with its process.
        """
        rests_until = self.now + rest_micros
        name = document.domain, document.document_id
        await self.documents.end_lease(*name, holder, rests_until, interrupted=interrupted)

    async def requeue(self, domain: str) -> int:
        """Queue the next documents of a running reindex; return an estimate of the queued work.

        Only a few at a time are queued, so that new documents do not wait for the whole domain.
        """
        place = await self.domains.find_locked(domain)
        if place is None or place.reindex_after is None:
            return 0
        last = await self.documents.requeue(domain, place.reindex_after, _REQUEUE_BATCH, self.now)
        await self.domains.set_reindexing(domain, last)
        if last is None:
            await self.outbox.publish(domain_event("domain.reindexed", place, self.actor.participant))
            return 0
        return max(await self.documents.requeued(domain))

    async def _models(self) -> tuple[str, ...]:
        return known_models_to_fill(await self.models.listed(), self.embeddings.models())

    async def _leased(self, document: Document, holder: str, *, to_count: bool = False) -> Document | None:
        # Lock order: the domain first, to update its counts.
        find = self.domains.find_locked if to_count else self.domains.find_shared
        # Documents of a deleted domain remain for a while, if there are many.
        if await find(document.domain) is None:
            return None
        until = self.now + LEASE_MICROS
        held = await self.documents.renew_lease(document.domain, document.document_id, document.version, holder, until)
        return None if held is None else held.document

    async def _unindex(self, document: Document) -> None:
        """Delete the chunks of a version that must not be found, also those of an earlier one with the same content."""
        if document.indexed_content != document.content_version:
            await self._delete_unfinished(document)
            return
        collection = domain_collection(document.domain)
        await self.collections.remove_item(collection, document.domain, document.document_id)
        await self.documents.unindex(document.domain, document.document_id)

    async def _delete_unfinished(self, document: Document) -> None:
        """Delete the chunks of all versions but the indexed one."""
        collection = domain_collection(document.domain)
        there = await self.collections.of_item(collection, document.domain, document.document_id)
        unfinished = [chunk.number for chunk in there if chunk.version != document.indexed_version]
        await self.collections.remove(collection, unfinished)

    async def _check_quota(self, growth: int) -> None:
        """Raise QuotaExceeded if the text is longer than what was counted, beyond the plan."""
        allowance = await self.plans.allowance()
        allowance.check_bytes(growth + sum(each.bytes for each in await self.domains.all()))

    async def _finish(self, document: Document, layout: ChunkLayout, label: TrustLabel | None) -> None:
        domain = await self.domains.find(document.domain)
        assert domain is not None  # noqa: S101 - a document that is held is in a domain
        done = structs.replace(
            document,
            chunks=len(layout.pieces),
            indexed_at=self.now,
            title=layout.title,
            media_type=layout.media_type,
            text_bytes=layout.size,
            trust=label,
        )
        await self.documents.finish(done, layout.kept)
        if done.counted != document.counted:
            await self.domains.count(document.domain, documents=0, size=done.counted - document.counted)
        await self.collections.remove_item(
            domain_collection(document.domain), document.domain, document.document_id, before=document.version
        )
        event = document_event("document.indexed", domain, done, self.actor.participant, chunks=done.chunks)
        await self.outbox.publish(event)
        if done.counted > document.counted:
            # After the event, which serializes the writers of a tenant: two cannot exceed the quota together.
            await self._check_quota(0)


def _growth(document: Document, layout: ChunkLayout) -> int:
    """Return how the counted bytes of a document change once its text is known."""
    return structs.replace(document, text_bytes=layout.size).counted - document.counted
