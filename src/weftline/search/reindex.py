"""Reindexing of everything searchable: documents, sessions and memories."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from weftline.access.grants import check_highest_clearance
from weftline.indexing.collections import MEMORY, SESSIONS, WINDOWS
from weftline.indexing.embeddings import Embeddings, TenantModelStore, semantic_search_off
from weftline.kernel.identity import Permission
from weftline.kernel.job_store import JobStore
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation
from weftline.knowledge.domain_operations import DomainView, Reembed, start_reindex
from weftline.search.session_cursor import REINDEXING_JOB, ReindexRange, remaining_events, start_session_reindex
from weftline.sessions.events.sql import EventStore

# Reindexing of everything searchable: documents, sessions and memories.


class ReindexAll(Request):
    """Reindex everything searchable."""

    reembed: Reembed = False


class ShowReindexing(Request):
    """Show the progress of reindexing."""


class DomainReindexStatus(Response):
    """A domain, and how many of its documents are left to reindex."""

    domain: str
    to_reindex: int


class ReindexStatus(Response, omit_defaults=False):
    """Remaining work of reindexing.

    ``events``: number of events left to process for sessions and memories; null if they are not being reindexed.
    ``semantic_search_off``: why texts are indexed by their words only; only if so.
    """

    domains: list[DomainReindexStatus]
    events: int | None
    semantic_search_off: str | msgspec.UnsetType = UNSET


class ReindexService(msgspec.Struct, frozen=True):
    """Starts reindexing everything searchable, and reports the progress."""

    view: DomainView
    jobs: JobStore
    events: EventStore
    models: TenantModelStore
    embeddings: Embeddings

    async def begin(self, *, reembed: bool) -> None:
        domains, collections = self.view.domains, self.view.collections
        # All domains are locked before any event is published: the same order as when a document is added.
        locked = [await domains.domains.find_locked(each.domain) for each in await domains.domains.all()]
        for domain in filter(None, locked):
            await start_reindex(domain, self.view, reembed=reembed)
        sessions, memory, windows = [
            (await collections.state(collection)).number for collection in (SESSIONS, MEMORY, WINDOWS)
        ]
        reindex = ReindexRange(sessions, memory, reembed, windows)
        await start_session_reindex(self.jobs, await self.events.last_seq(), reindex)

    async def status(self) -> ReindexStatus:
        found = [await self.view.info(domain) for domain in await self.view.domains.visible()]
        progress = await self.jobs.progress(REINDEXING_JOB)
        return ReindexStatus(
            domains=[
                DomainReindexStatus(domain=each.domain, to_reindex=each.to_reindex) for each in found if each.reindexing
            ],
            events=None if progress is None else remaining_events(progress),
            semantic_search_off=await semantic_search_off(self.models, self.embeddings) or UNSET,
        )


@operation(
    "knowledge.reindex_all",
    tool="knowledge",
    action="reindex_all",
    http="POST /v1/reindex",
    status=202,
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    requires=check_highest_clearance,
    audited=True,
    session=SessionUse.OUTSIDE,
)
async def reindex_all(request: ReindexAll, service: ReindexService) -> ReindexStatus:
    """Reindex everything searchable: documents, messages, boards and memories.

    Runs in the background, in batches; show_reindexing returns the progress. Everything stays searchable meanwhile.
    """
    await service.begin(reembed=request.reembed)
    return await service.status()


@operation(
    "knowledge.show_reindexing",
    tool="knowledge",
    action="show_reindexing",
    http="GET /v1/reindex",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    audience=Audience.NOT_SUBAGENTS,
    session=SessionUse.OUTSIDE,
)
async def show_reindexing(_: ShowReindexing, service: ReindexService) -> ReindexStatus:
    """Show what is being reindexed, and how much of it is left."""
    return await service.status()
