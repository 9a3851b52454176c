"""Having everything that is searched indexed anew: documents of all domains, and what was said and remembered."""

from __future__ import annotations

import msgspec

from weft.capabilities.access.grants import check_highest_clearance
from weft.capabilities.events.model import EventStore
from weft.capabilities.indexing.collections.model import MEMORY, SESSIONS
from weft.capabilities.knowledge.domain_operations import Afresh, DomainView, start_reindex
from weft.capabilities.search.session_indexing.cursor import REINDEXING, ReindexRange, go_back, left_of
from weft.kernel.identity import Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation
from weft.kernel.ports import JobStore


class ReindexAll(Request):
    """Everything that can be searched."""

    afresh: Afresh = False


class ShowReindexing(Request):
    """Whatever is indexed anew."""


class DomainLeft(Response):
    """A domain, and how many of its documents are still to be indexed anew."""

    domain: str
    to_reindex: int


class ReindexingShown(Response, omit_defaults=False):
    """What is still to be indexed anew.

    ``events`` are those of the tenant's log that are to be gone through for what was said in sessions and remembered
    by agents; null if that is not under way.
    """

    domains: list[DomainLeft]
    events: int | None


class Everything(msgspec.Struct, frozen=True):
    """All that is searched, with how far it is indexed anew."""

    shown: DomainView
    jobs: JobStore
    events: EventStore

    async def begin(self, *, afresh: bool) -> None:
        domains, collections = self.shown.domains, self.shown.collections
        # All of them before anything is told: whoever puts a document locks its domain first and tells then, too.
        locked = [await domains.domains.find_locked(each.domain) for each in await domains.domains.all()]
        for domain in filter(None, locked):
            await start_reindex(domain, self.shown, afresh=afresh)
        sessions, memory = [(await collections.state(collection)).number for collection in (SESSIONS, MEMORY)]
        await go_back(self.jobs, await self.events.last_seq(), ReindexRange(sessions, memory, afresh))

    async def left(self) -> ReindexingShown:
        found = [await self.shown.info(domain) for domain in await self.shown.domains.visible()]
        standing = await self.jobs.progress(REINDEXING)
        return ReindexingShown(
            domains=[DomainLeft(domain=each.domain, to_reindex=each.to_reindex) for each in found if each.reindexing],
            events=None if standing is None else left_of(standing),
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
    audited=True,
)
async def reindex_all(request: ReindexAll, everything: Everything) -> ReindexingShown:
    """Have everything that searches find indexed anew: documents, messages, boards and memories.

    It goes on by itself, a few at a time, and show_reindexing tells how far it is; searches find it all meanwhile.
    """
    check_highest_clearance(everything.shown.domains.actor)
    await everything.begin(afresh=request.afresh)
    return await everything.left()


@operation(
    "knowledge.show_reindexing",
    tool="knowledge",
    action="show_reindexing",
    http="GET /v1/reindex",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    audience=Audience.NOT_SUBAGENTS,
)
async def show_reindexing(_: ShowReindexing, everything: Everything) -> ReindexingShown:
    """Show what is being indexed anew, and how much of it is left."""
    return await everything.left()
