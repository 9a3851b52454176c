"""Bringing a document to where searches find it, in transactions that each leave it whole.

Chunks of a new version are added a batch at a time, while searches go on finding the old one. The last batch makes the
new version the one that is found and takes the old one away. How far it got is written with each batch, so whoever goes
on after a crash neither adds a chunk twice nor leaves one out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import structs

from weft.capabilities.indexing.collections.model import NewChunk, domain_collection
from weft.capabilities.indexing.collections.store import CollectionStore
from weft.capabilities.indexing.embeddings.model import Embeddings
from weft.capabilities.indexing.embeddings.model_selection import known_models_to_fill, suffices
from weft.capabilities.indexing.embeddings.store import TenantModelStore
from weft.capabilities.indexing.model_migration.migration import models_in_use
from weft.capabilities.knowledge.document_chunks import Layout
from weft.capabilities.knowledge.documents import document_event
from weft.capabilities.knowledge.domains import domain_event
from weft.capabilities.knowledge.model import Document, Domain
from weft.capabilities.knowledge.quotas import KnowledgeLimits, check_bytes
from weft.capabilities.knowledge.store import DocumentStore, DomainStore, PlanStore, QueuedDocument
from weft.kernel.clock import Clock, to_micros
from weft.kernel.events import Outbox
from weft.kernel.identity import Actor
from weft.kernel.jobs import LEASE_MICROS

# So often a document is taken up without getting any further: whatever ends the process must not do so for ever.
MOST_STARTS = 2
_REQUEUED_AT_ONCE = 20
_LONGEST_REASON = 500
_ENDED = (
    "Indexing it was begun twice and never came to an end: Weft stopped or hung while it was at work. "
    "Put it again to have it tried again; if it fails again, put it in smaller parts or as plain text."
)

# Another has the document, or it is another by now; or the tenant needs vectors of other models.
Outcome = Literal["written", "lost", "other_models"]


class Taken(NamedTuple):
    """A document in hand: how far it got, what it holds, and which models its chunks need vectors of."""

    document: Document
    domain: Domain
    cut: str
    content: bytes
    models: tuple[str, ...]

    @property
    def afresh(self) -> bool:
        """Tell whether it is to be embedded although it was before."""
        return self.domain.reindex_afresh and self.document.is_reindexed


class EmbeddedBatch(NamedTuple):
    """Chunks that follow each other, with their vectors by model."""

    span: range
    chunks: Sequence[NewChunk]
    vectors: Mapping[str, Sequence[bytes]]


class Ingest(msgspec.Struct, frozen=True):
    """What indexing needs, in one transaction."""

    actor: Actor
    domains: DomainStore
    plans: PlanStore
    limits: KnowledgeLimits
    documents: DocumentStore
    collections: CollectionStore
    models: TenantModelStore
    embeddings: Embeddings
    outbox: Outbox
    clock: Clock

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def waiting(self, limit: int) -> Sequence[QueuedDocument]:
        """Return the next documents to be indexed; refused if that must be left to processes that know other models."""
        waiting = await self.documents.waiting(self.now, limit)
        if waiting:
            await self._models()
        return waiting

    async def take(self, waiting: QueuedDocument, holder: str) -> Taken | None:
        """Take a document in hand; None if there is nothing to do for it, or somebody else has it."""
        models = await self._models()
        domain = await self.domains.held(waiting.domain)
        now = self.now
        held = await self.documents.claim(waiting.domain, waiting.document_id, holder, now, now + LEASE_MICROS)
        if domain is None or held is None:
            return None
        document = held.document
        if held.starts >= MOST_STARTS:
            await self.fail(document, holder, _ENDED)
            return None
        kept = await self.documents.kept(document.domain, document.document_id, document.content_version)
        if kept is None:
            return None
        return Taken(document, domain, held.cut, kept.content, models)

    async def renew(self, document: Document, holder: str) -> bool:
        """Hold on to a document; False if it is in other hands, or another by now."""
        return await self._held(document, holder) is not None

    async def write(self, taken: Taken, holder: str, layout: Layout, batch: EmbeddedBatch) -> Outcome:
        """Add a batch to what is there of the version at work; the last one is what searches find from then on."""
        total, grown = len(layout.pieces), _growth(taken.document, layout)
        is_last = batch.span.stop >= total
        document = await self._held(taken.document, holder, to_count=is_last and grown != 0)
        if document is None:
            return "lost"
        if batch.span.start == 0 and grown > 0:
            await self._check_room(grown)
        if not suffices(batch.vectors, await models_in_use(self.models, self.embeddings.models(), self.now)):
            return "other_models"
        if document.chunks_done > batch.span.start:
            await self._begin_anew(document)
        await self.collections.add(domain_collection(document.domain), batch.chunks, batch.vectors)
        if is_last:
            await self._finish(document, layout)
        else:
            await self.documents.advance(
                document.domain, document.document_id, done=batch.span.stop, total=total, cut=layout.cut
            )
        return "written"

    async def fail(self, document: Document, holder: str, reason: str) -> None:
        """Note that a document cannot be indexed, and why; what searches found of it before, they still find."""
        if await self._held(document, holder) is None:
            return
        await self._begin_anew(document)
        shown = reason.replace("\x00", "")[:_LONGEST_REASON]
        await self.documents.fail(document.domain, document.document_id, shown)
        domain = await self.domains.find(document.domain)
        if domain is not None:
            await self.outbox.publish(document_event("document.failed", domain, document, self.actor.participant))

    async def release(self, document: Document, holder: str, rest_micros: int = 0) -> None:
        """Let go of a document; it rests for so long."""
        await self.documents.release(document.domain, document.document_id, holder, self.now + rest_micros)

    async def requeue(self, domain: str) -> int:
        """Have the next documents of a domain indexed anew once those before are; return in how many chunks they are.

        Only a few at a time are put among those that wait, so that whatever is put meanwhile does not wait behind all.
        """
        place = await self.domains.find_locked(domain)
        if place is None or place.reindex_after is None:
            return 0
        last = await self.documents.requeue(domain, place.reindex_after, _REQUEUED_AT_ONCE, self.now)
        await self.domains.set_reindexing(domain, last)
        if last is None:
            await self.outbox.publish(domain_event("domain.reindexed", place, self.actor.participant))
            return 0
        waiting = await self.documents.requeued(domain)
        return max(waiting)

    async def _models(self) -> tuple[str, ...]:
        return known_models_to_fill(await self.models.listed(), self.embeddings.models())

    async def _held(self, document: Document, holder: str, *, to_count: bool = False) -> Document | None:
        # Who counts locks the domain before anything else, as everyone does.
        find = self.domains.find_locked if to_count else self.domains.held
        # Documents of a domain that was deleted are there for a while, if there are many.
        if await find(document.domain) is None:
            return None
        until = self.now + LEASE_MICROS
        held = await self.documents.held(document.domain, document.document_id, document.version, holder, until)
        return None if held is None else held.document

    async def _begin_anew(self, document: Document) -> None:
        """Take away all but what searches find: of the version at work, and of others that were never finished."""
        collection = domain_collection(document.domain)
        there = await self.collections.of_item(collection, document.domain, document.document_id)
        unfinished = [chunk.number for chunk in there if chunk.version != document.indexed_version]
        await self.collections.remove(collection, unfinished)

    async def _check_room(self, grown: int) -> None:
        """Refuse a text that is so much longer than what was counted for it, if the plan does not allow that."""
        plan = await self.plans.plan() or self.limits.default_plan
        check_bytes(plan, grown + sum(each.bytes for each in await self.domains.all()))

    async def _finish(self, document: Document, layout: Layout) -> None:
        domain = await self.domains.find(document.domain)
        assert domain is not None  # noqa: S101 - a document that is held is in a domain
        done = structs.replace(
            document,
            chunks=len(layout.pieces),
            indexed_at=self.now,
            title=layout.title,
            media_type=layout.media_type,
            text_bytes=layout.size,
        )
        await self.documents.finish(done, layout.kept)
        if done.counted != document.counted:
            await self.domains.count(document.domain, documents=0, size=done.counted - document.counted)
        await self.collections.remove_item(
            domain_collection(document.domain), document.domain, document.document_id, before=document.version
        )
        event = document_event("document.indexed", domain, done, self.actor.participant, chunks=done.chunks)
        await self.outbox.publish(event)


def _growth(document: Document, layout: Layout) -> int:
    """Return how many bytes a document counts for more, or fewer, once its text is known."""
    return structs.replace(document, text_bytes=layout.size).counted - document.counted
