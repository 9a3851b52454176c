"""Having the documents of a domain indexed anew."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import structs

from weft.capabilities.knowledge.domain_operations import DomainInfo, Shown
from weft.capabilities.knowledge.domains import domain_event
from weft.capabilities.knowledge.model import Domain, DomainName, DomainNotFound
from weft.kernel.identity import Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, operation

Afresh = Annotated[
    bool, msgspec.Meta(description="Embed everything again, also texts whose vectors are kept: costs the most.")
]


class ReindexDomain(Request):
    """Which domain to index anew."""

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
async def reindex(request: ReindexDomain, shown: Shown) -> DomainInfo:
    """Have every document of a domain read, cut and indexed anew, a few at a time; searches find it all meanwhile.

    It goes on by itself, and show_domain tells how far it is. What is the same as before is not embedded again.
    """
    domain = await shown.domains.lock(request.domain)
    return await shown.info(await begin_anew(domain, shown, afresh=request.afresh))


async def begin_anew(domain: Domain, shown: Shown, *, afresh: bool) -> Domain:
    """Have a domain indexed anew from its first document on, also if that is under way."""
    begun = structs.replace(domain, reindex_after="", reindex_afresh=afresh)
    await shown.domains.domains.update(begun)
    await shown.domains.tell(domain_event("domain.reindexing", domain, shown.domains.actor.participant))
    return begun
