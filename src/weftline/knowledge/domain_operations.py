"""Operations on domains: create, list, show, update and delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType, structs

from weftline.access.grants import HIGHEST_CLEARANCE, check_clearance, check_highest_clearance
from weftline.access.model import Pattern
from weftline.access.plans import QuotaUse
from weftline.indexing.chunking.model import ChunkingOptions
from weftline.indexing.collections import domain_collection
from weftline.indexing.sql import CollectionStore
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, QuotaExceeded
from weftline.kernel.identity import ANYONE
from weftline.kernel.operation import Request, Response, shared_fields
from weftline.knowledge.domains import Domains, domain_event
from weftline.knowledge.model import (
    NEUTRAL_IMPORTANCE,
    Domain,
    DomainExists,
    DomainName,
    DomainNotFound,
    Importance,
    admin_operation,
    check_chunking,
    read_operation,
)
from weftline.knowledge.sql import DocumentStore
from weftline.knowledge.templates.model import (
    DomainEvaluation,
    DomainTemplate,
    TemplateName,
    TemplateNotFound,
    check_template,
    find_template,
)
from weftline.knowledge.templates.operations import TemplateInfo, template_info
from weftline.safety.trust.gate import GATE_ERRORS, submitted

Description = Annotated[
    str, msgspec.Meta(max_length=2_000, description="What the domain is about; agents choose by it.")
]
Clearance = Annotated[int, msgspec.Meta(ge=1, le=HIGHEST_CLEARANCE, description="Minimum clearance to see it.")]
Agents = Annotated[
    tuple[Pattern, ...],
    msgspec.Meta(min_length=1, max_length=100, description="Agents that can see it; for others it does not exist."),
]
Writers = Annotated[
    tuple[Pattern, ...],
    msgspec.Meta(
        min_length=1, max_length=100, description="Agents that may write, of those that can see it; admins always may."
    ),
]
Chunking = Annotated[ChunkingOptions, msgspec.Meta(description="Chunk size and overlap of its documents.")]
FromTemplate = Annotated[
    TemplateName | DomainTemplate | None,
    msgspec.Meta(description="Template to create it from: a name of list_templates, or a whole template."),
]
Weight = Annotated[Importance, msgspec.Meta(description="Default importance of its documents.")]


class CreateDomain(Request):
    """A new domain. Description and chunking are by default those of the template."""

    domain: DomainName
    template: FromTemplate = None
    description: Description | None = None
    clearance: Clearance = 1
    agents: Agents = ANYONE
    writers: Writers = ANYONE
    chunking: Chunking | None = None
    importance: Weight = NEUTRAL_IMPORTANCE


class ListDomains(Request):
    """Lists the domains you can see."""


class ShowDomain(Request):
    """A domain."""

    domain: DomainName


class UpdateDomain(Request):
    """A domain and the fields to change."""

    domain: DomainName
    description: Description | None = None
    clearance: Clearance | None = None
    agents: Agents | None = None
    writers: Writers | None = None
    chunking: Chunking | None = None
    importance: Weight | None = None


class DeleteDomain(Request):
    """A domain to delete."""

    domain: DomainName

    @property
    def effects(self) -> tuple[str, ...]:
        """Return the name of what deletes a document: all of the domain are deleted."""
        return ("knowledge.delete_document",)


class DomainInfo(Response, omit_defaults=False):
    """A domain with the number of its documents and chunks; pending, failed and quarantined count documents.

    During a reindex, ``to_reindex`` documents are left. ``template``: the name of the one it was created from.
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
    quarantined: int
    reindexing: bool
    to_reindex: int
    template: str | None
    template_version: int | None


class DomainDetails(DomainInfo):
    """A domain with its copy of the template, and what the example questions of it found last.

    Later versions of the template do not change the copy.
    """

    template_copy: TemplateInfo | UnsetType = UNSET
    evaluation: DomainEvaluation | UnsetType = UNSET


class DomainList(Response):
    """Domains, by name, and the tenant's plan."""

    domains: list[DomainInfo]
    plan: str


class DomainDeleted(Response):
    """The deleted domain and the number of its documents."""

    domain: str
    documents: int


class DomainView(msgspec.Struct, frozen=True):
    """Builds the description of a domain, with document and chunk counts."""

    domains: Domains
    documents: DocumentStore
    collections: CollectionStore

    async def info(self, domain: Domain) -> DomainInfo:
        return DomainInfo(**await self._fields(domain))

    async def details(self, domain: Domain) -> DomainDetails:
        """Return a domain with its template and evaluation."""
        template = domain.template
        return DomainDetails(
            **await self._fields(domain),
            template_copy=UNSET if template is None else template_info(template),
            evaluation=domain.evaluation or UNSET,
        )

    async def _fields(self, domain: Domain) -> dict[str, Any]:
        backlog = await self.documents.backlog(domain.domain)
        collection = await self.collections.state(domain_collection(domain.domain))
        fields = shared_fields(domain, DomainInfo) | {
            "created_at": from_micros(domain.created_at),
            "updated_at": from_micros(domain.updated_at),
            "template": domain.template and domain.template.name,
            "template_version": domain.template and domain.template.version,
        }
        return fields | {
            "chunks": collection.chunks,
            "pending": backlog.pending,
            "failed": backlog.failed,
            "quarantined": backlog.quarantined,
            "reindexing": domain.reindex_after is not None,
            "to_reindex": await self._to_reindex(domain),
        }

    async def _to_reindex(self, domain: Domain) -> int:
        if domain.reindex_after is None:
            return 0
        waiting = await self.documents.requeued(domain.domain)
        return waiting.documents + await self.documents.count_after(domain.domain, domain.reindex_after)


@admin_operation(
    "knowledge.create_domain",
    action="create_domain",
    http="POST /v1/domains",
    status=201,
    requires=check_highest_clearance,
    off_record=("description", "template"),
    errors=(DomainExists, QuotaExceeded, TemplateNotFound, ContentTooLarge, *GATE_ERRORS),
    content=lambda request: (submitted(request.description or ""), submitted(_own_texts(request.template))),
)
async def create_domain(request: CreateDomain, view: DomainView) -> DomainInfo:
    """Create a domain: a set of documents with common access rules, searched together.

    Needs the highest clearance, since name conflicts and quotas reveal the existence of other domains.
    """
    domains = view.domains
    template = await _admitted_template(request, domains)
    chosen = template or DomainTemplate(name=request.domain)
    chunking = request.chunking or chosen.chunking
    check_chunking(chunking)
    description = chosen.description
    if request.description is not None:
        description = await domains.described(request.domain, request.description)
    domain = Domain(
        **shared_fields(request, Domain) | {"description": description, "chunking": chunking, "template": template},
        created_by=domains.actor.principal_id,
        created_at=domains.now,
        updated_at=domains.now,
    )
    if not await domains.domains.add(domain):
        raise DomainExists(f"The domain '{domain.domain}' already exists or is still being deleted.")
    await domains.publish(domain_event("domain.created", domain, domains.actor.participant))
    # After the event, which serializes the writers of a tenant: two cannot exceed the quota together.
    count, allowance = len(await domains.domains.all()), await domains.plans.allowance()
    allowance.check_domains(count)
    await domains.quota_warnings.note(QuotaUse("domains", allowance.domains, count - 1, count))
    return await view.info(domain)


async def _admitted_template(request: CreateDomain, domains: Domains) -> DomainTemplate | None:
    """Return the template of a new domain. Texts of one that the caller wrote pass the gate unchanged or not at all."""
    template = request.template
    if not isinstance(template, DomainTemplate):
        return None if template is None else find_template(template)
    check_template(template)
    texts = template.texts
    if await domains.described(request.domain, texts) != texts:
        raise InvalidInput(
            "template: contains secrets or personal data, which the policy of this tenant masks.",
            hint="Leave them out of the template.",
            field="template",
        )
    return template


def _own_texts(template: str | DomainTemplate | None) -> str:
    return template.texts if isinstance(template, DomainTemplate) else ""


@read_operation("knowledge.list_domains", action="list_domains", http="GET /v1/domains")
async def list_domains(request: ListDomains, view: DomainView) -> DomainList:
    """List the domains you can see, with their documents and indexing progress."""
    del request
    domains = [await view.info(domain) for domain in await view.domains.visible()]
    return DomainList(domains=domains, plan=(await view.domains.plans.allowance()).plan)


@read_operation(
    "knowledge.show_domain", action="show_domain", http="GET /v1/domains/{domain}", errors=(DomainNotFound,)
)
async def show_domain(request: ShowDomain, view: DomainView) -> DomainDetails:
    """Show a domain: description, access rules, indexing progress, and the evaluation of its example questions."""
    return await view.details(await view.domains.find(request.domain))


@admin_operation(
    "knowledge.update_domain",
    action="update_domain",
    http="PATCH /v1/domains/{domain}",
    off_record=("description",),
    errors=(DomainNotFound, *GATE_ERRORS),
    content=lambda request: (submitted(request.description or ""),),
)
async def update_domain(request: UpdateDomain, view: DomainView) -> DomainInfo:
    """Update a domain. Access rules take effect at once, also for searches.

    A change of chunking or importance reindexes all documents in the background; until a document is done, searches
    find its previous chunks.
    """
    domains = view.domains
    before = await domains.lock(request.domain)
    changes = {name: value for name, value in structs.asdict(request).items() if value is not None and name != "domain"}
    if not changes:
        raise InvalidInput("Give at least one field to change.", field="description")
    if request.description is not None:
        changes["description"] = await domains.described(request.domain, request.description)
    after = structs.replace(before, **changes, updated_at=domains.now)
    check_clearance(domains.actor, after.clearance, "A domain of this clearance")
    check_chunking(after.chunking)
    if (after.chunking, after.importance) != (before.chunking, before.importance):
        after = structs.replace(after, reindex_after="", reembed=False)
    await domains.domains.update(after)
    if (after.agents, after.clearance) != (before.agents, before.clearance):
        await domains.readdress(after)
    reindexing = after.reindex_after is not None
    await domains.publish(domain_event("domain.updated", after, domains.actor.participant, reindexing=reindexing))
    return await view.info(after)


@admin_operation(
    "knowledge.delete_domain",
    action="delete_domain",
    http="DELETE /v1/domains/{domain}",
    destructive=True,
    errors=(DomainNotFound,),
)
async def delete_domain(request: DeleteDomain, view: DomainView) -> DomainDeleted:
    """Delete a domain permanently, with its documents and chunks."""
    domains = view.domains
    domain = await domains.lock(request.domain)
    await domains.domains.delete(domain.domain)
    await view.collections.remove_collection(domain_collection(domain.domain))
    await domains.publish(domain_event("domain.deleted", domain, domains.actor.participant, documents=domain.documents))
    left, allowance = await domains.domains.all(), await domains.plans.allowance()
    size = sum(each.bytes for each in left)
    for use in (
        QuotaUse("domains", allowance.domains, len(left) + 1, len(left)),
        QuotaUse("bytes", allowance.bytes, size + domain.bytes, size),
    ):
        await domains.quota_warnings.note(use)
    return DomainDeleted(domain=domain.domain, documents=domain.documents)


Reembed = Annotated[bool, msgspec.Meta(description="Embed all texts again, instead of using cached vectors.")]


class ReindexDomain(Request):
    """A domain to reindex."""

    domain: DomainName
    reembed: Reembed = False


@admin_operation(
    "knowledge.reindex",
    action="reindex",
    http="POST /v1/domains/{domain}/reindex",
    status=202,
    errors=(DomainNotFound,),
)
async def reindex(request: ReindexDomain, view: DomainView) -> DomainInfo:
    """Parse, chunk and index all documents of a domain again, in the background; searches continue to work.

    show_domain shows the progress. Unchanged chunks are not embedded again, unless ``reembed`` is set.
    """
    domain = await view.domains.lock(request.domain)
    return await view.info(await start_reindex(domain, view, reembed=request.reembed))


async def start_reindex(domain: Domain, view: DomainView, *, reembed: bool) -> Domain:
    """Start the reindexing of a domain; one that is running starts over."""
    started = structs.replace(domain, reindex_after="", reembed=reembed)
    await view.domains.domains.update(started)
    await view.domains.publish(domain_event("domain.reindexing", domain, view.domains.actor.participant))
    return started
