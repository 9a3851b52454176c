"""Operation that reindexes the documents of a domain."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import structs

from weft.capabilities.knowledge.domain_operations import DomainInfo, DomainView
from weft.capabilities.knowledge.domains import domain_event
from weft.capabilities.knowledge.model import Domain, DomainName, DomainNotFound
from weft.kernel.identity import Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, operation

Afresh = Annotated[bool, msgspec.Meta(description="Embed all texts again, instead of using cached vectors.")]


class ReindexDomain(Request):
    """A domain to reindex."""

    domain: DomainName
    afresh: Afresh = False


@operation(
    "knowledge.reindex",
    tool="knowledge",
    action="reindex",
    http="POST /v1/domains/{domain}/reindex",
    status=202,
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(DomainNotFound,),
)
async def reindex(request: ReindexDomain, view: DomainView) -> DomainInfo:
    """Parse, chunk and index all documents of a domain again, in the background; searches continue to work.

    show_domain shows the progress. Unchanged chunks are not embedded again, unless ``afresh`` is set.
    """
    domain = await view.domains.lock(request.domain)
    return await view.info(await start_reindex(domain, view, afresh=request.afresh))


async def start_reindex(domain: Domain, view: DomainView, *, afresh: bool) -> Domain:
    """Start the reindexing of a domain; one that is running starts over."""
    started = structs.replace(domain, reindex_after="", reindex_afresh=afresh)
    await view.domains.domains.update(started)
    await view.domains.publish(domain_event("domain.reindexing", domain, view.domains.actor.participant))
    return started
