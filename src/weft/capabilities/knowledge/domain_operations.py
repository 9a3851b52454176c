"""What can be asked of domains: to make, show, change and delete them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import structs

from weft.capabilities.access.grants import HIGHEST_CLEARANCE, check_clearance, check_highest_clearance
from weft.capabilities.indexing.chunking.model import ChunkingOptions
from weft.capabilities.indexing.collections.model import domain_collection
from weft.capabilities.indexing.collections.store import CollectionStore
from weft.capabilities.knowledge.domains import Domains, domain_event
from weft.capabilities.knowledge.model import (
    NEUTRAL_IMPORTANCE,
    Domain,
    DomainExists,
    DomainName,
    DomainNotFound,
    Importance,
    check_chunking,
)
from weft.capabilities.knowledge.quotas import QuotaExceeded, check_domains
from weft.capabilities.knowledge.store import DocumentStore
from weft.capabilities.sessions.model import Pattern
from weft.kernel.clock import from_micros
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import ANYONE, Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation

Description = Annotated[str, msgspec.Meta(max_length=2_000, description="What it is about; agents choose by it.")]
Clearance = Annotated[
    int, msgspec.Meta(ge=1, le=HIGHEST_CLEARANCE, description="Who looks into it must be cleared as high.")
]
Agents = Annotated[
    tuple[Pattern, ...],
    msgspec.Meta(min_length=1, max_length=100, description="Who may look into it; to others it does not exist."),
]
Writers = Annotated[
    tuple[Pattern, ...],
    msgspec.Meta(min_length=1, max_length=100, description="Who of those who may look into it may write, like admins."),
]
Cut = Annotated[ChunkingOptions, msgspec.Meta(description="How its documents are cut.")]
Weight = Annotated[Importance, msgspec.Meta(description="How important its documents are that say nothing else.")]


class CreateDomain(Request):
    """A new domain."""

    domain: DomainName
    description: Description = ""
    clearance: Clearance = 1
    agents: Agents = ANYONE
    writers: Writers = ANYONE
    chunking: Cut = ChunkingOptions()
    importance: Weight = NEUTRAL_IMPORTANCE


class ListDomains(Request):
    """The domains you may look into."""


class ShowDomain(Request):
    """Which domain to show."""

    domain: DomainName


class UpdateDomain(Request):
    """A domain, and what shall be different."""

    domain: DomainName
    description: Description | None = None
    clearance: Clearance | None = None
    agents: Agents | None = None
    writers: Writers | None = None
    chunking: Cut | None = None
    importance: Weight | None = None


class DeleteDomain(Request):
    """Which domain to delete."""

    domain: DomainName


class DomainInfo(Response, omit_defaults=False):
    """A domain, with what it holds: chunks are what searches find; pending and failed count documents.

    While it is reindexed, ``to_reindex`` documents are still to be indexed anew.
    """

    domain: str
    description: str
    clearance: int
    agents: tuple[str, ...]
    writers: tuple[str, ...]
    chunking: ChunkingOptions
    importance: float
    created_by: str
    created_at: datetime
    updated_at: datetime
    documents: int
    bytes: int
    chunks: int
    pending: int
    failed: int
    reindexing: bool
    to_reindex: int


class DomainList(Response):
    """Domains by name, and the plan that says how much there may be."""

    domains: list[DomainInfo]
    plan: str


class DomainDeleted(Response):
    """The domain is gone, with its documents and all that searches found of them."""

    domain: str
    documents: int


class Shown(msgspec.Struct, frozen=True):
    """Domains with what they hold."""

    domains: Domains
    documents: DocumentStore
    collections: CollectionStore

    async def info(self, domain: Domain) -> DomainInfo:
        backlog = await self.documents.backlog(domain.domain)
        collection = await self.collections.state(domain_collection(domain.domain))
        return DomainInfo(
            domain=domain.domain,
            description=domain.description,
            clearance=domain.clearance,
            agents=domain.agents,
            writers=domain.writers,
            chunking=domain.chunking,
            importance=domain.importance,
            created_by=domain.created_by,
            created_at=from_micros(domain.created_at),
            updated_at=from_micros(domain.updated_at),
            documents=domain.documents,
            bytes=domain.bytes,
            chunks=collection.chunks,
            pending=backlog.pending,
            failed=backlog.failed,
            reindexing=domain.reindex_after is not None,
            to_reindex=await self._to_reindex(domain),
        )

    async def _to_reindex(self, domain: Domain) -> int:
        if domain.reindex_after is None:
            return 0
        waiting = await self.documents.requeued(domain.domain)
        return waiting.documents + await self.documents.count_behind(domain.domain, domain.reindex_after)


@operation(
    "knowledge.create_domain",
    tool="knowledge",
    action="create_domain",
    http="POST /v1/domains",
    status=201,
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    off_record=("description",),
    errors=(DomainExists, QuotaExceeded),
)
async def create_domain(request: CreateDomain, shown: Shown) -> DomainInfo:
    """Make a domain of knowledge: documents that are searched together, by those who may look into it.

    It needs the highest clearance: whether a name is taken, or a plan used up, tells of every domain there is.
    """
    domains = shown.domains
    check_highest_clearance(domains.actor)
    check_chunking(request.chunking)
    domain = Domain(
        domain=request.domain,
        description=request.description,
        clearance=request.clearance,
        agents=request.agents,
        writers=request.writers,
        chunking=request.chunking,
        importance=request.importance,
        created_by=domains.actor.principal_id,
        created_at=domains.now,
        updated_at=domains.now,
    )
    if not await domains.domains.add(domain):
        raise DomainExists(f"There is a domain '{domain.domain}' already, or one is still being deleted.")
    await domains.tell(domain_event("domain.created", domain, domains.actor.participant))
    # Behind the event, for which a tenant's writers wait in line: no two can both be the last that is allowed.
    check_domains(await domains.plan(), len(await domains.domains.all()))
    return await shown.info(domain)


@operation(
    "knowledge.list_domains",
    tool="knowledge",
    action="list_domains",
    http="GET /v1/domains",
    permission=Permission.READ,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.READ,
)
async def list_domains(request: ListDomains, shown: Shown) -> DomainList:
    """List the domains you may look into, with what they hold and how much of it can be found already."""
    del request
    domains = [await shown.info(domain) for domain in await shown.domains.admitting()]
    return DomainList(domains=domains, plan=await shown.domains.plan())


@operation(
    "knowledge.show_domain",
    tool="knowledge",
    action="show_domain",
    http="GET /v1/domains/{domain}",
    permission=Permission.READ,
    rate=RateClass.KNOWLEDGE,
    effect=Effect.READ,
    errors=(DomainNotFound,),
)
async def show_domain(request: ShowDomain, shown: Shown) -> DomainInfo:
    """Show a domain: what it is about, who may look into it, and how much of it can be found already."""
    return await shown.info(await shown.domains.find(request.domain))


@operation(
    "knowledge.update_domain",
    tool="knowledge",
    action="update_domain",
    http="PATCH /v1/domains/{domain}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    off_record=("description",),
    errors=(DomainNotFound,),
)
async def update_domain(request: UpdateDomain, shown: Shown) -> DomainInfo:
    """Change a domain. Who may look into it changes at once, for searches too.

    Another chunking or importance has every document indexed anew, one after the other; until it is a document's turn,
    searches find it as it was.
    """
    domains = shown.domains
    before = await domains.lock(request.domain)
    changes = {name: value for name, value in structs.asdict(request).items() if value is not None and name != "domain"}
    if not changes:
        raise InvalidInput("Say what shall be different.", field="description")
    after = structs.replace(before, **changes, updated_at=domains.now)
    check_clearance(domains.actor, after.clearance, "A domain of this clearance")
    check_chunking(after.chunking)
    if (after.chunking, after.importance) != (before.chunking, before.importance):
        after = structs.replace(after, reindex_after="", reindex_afresh=False)
    await domains.domains.update(after)
    if (after.agents, after.clearance) != (before.agents, before.clearance):
        await domains.readdress(after)
    reindexing = after.reindex_after is not None
    await domains.tell(domain_event("domain.updated", after, domains.actor.participant, reindexing=reindexing))
    return await shown.info(after)


@operation(
    "knowledge.delete_domain",
    tool="knowledge",
    action="delete_domain",
    http="DELETE /v1/domains/{domain}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(DomainNotFound,),
)
async def delete_domain(request: DeleteDomain, shown: Shown) -> DomainDeleted:
    """Delete a domain for good, with its documents and everything that searches find of them."""
    domains = shown.domains
    domain = await domains.lock(request.domain)
    await domains.domains.delete(domain.domain)
    await shown.collections.remove_collection(domain_collection(domain.domain))
    await domains.tell(domain_event("domain.deleted", domain, domains.actor.participant, documents=domain.documents))
    return DomainDeleted(domain=domain.domain, documents=domain.documents)
