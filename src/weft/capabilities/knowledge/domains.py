"""The domains of a tenant, as one caller finds them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft.capabilities.access.grants import HIGHEST_CLEARANCE
from weft.capabilities.knowledge.model import Domain, DomainNotFound, may_look_into
from weft.capabilities.knowledge.quotas import KnowledgeLimits, Plan
from weft.capabilities.knowledge.store import DomainStore, PlanStore
from weft.kernel.clock import Clock, to_micros
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.hints import MAX_COMPARED, close_names
from weft.kernel.identity import CLEARANCE, Actor


class Domains(msgspec.Struct, frozen=True):
    """Domains, and what is told of them. One that the caller may not look into does not exist for it."""

    actor: Actor
    domains: DomainStore
    plans: PlanStore
    limits: KnowledgeLimits
    outbox: Outbox
    clock: Clock

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def find(self, name: str) -> Domain:
        return await self._admitted(name, await self.domains.find(name))

    async def lock(self, name: str) -> Domain:
        """Return a domain, before anyone else can change it or what it counts."""
        return await self._admitted(name, await self.domains.find_locked(name))

    async def admitting(self) -> Sequence[Domain]:
        """Return the domains the caller may look into, by name."""
        return [domain for domain in await self.domains.all() if may_look_into(domain, self.actor)]

    async def plan(self) -> Plan:
        return await self.plans.plan() or self.limits.default_plan

    async def tell(self, event: NewEvent) -> None:
        await self.outbox.publish(event)

    async def readdress(self, domain: Domain) -> None:
        """Have the past of a domain told only to those who may look into it now."""
        for family in ("domain", "document"):
            await self.outbox.readdress_family(family, domain.domain, domain.agents, domain.cleared)

    async def _admitted(self, name: str, domain: Domain | None) -> Domain:
        if domain is None or not may_look_into(domain, self.actor):
            raise await self._unknown(name, denied=domain is not None)
        return domain

    async def _unknown(self, name: str, *, denied: bool) -> DomainNotFound:
        shown = name[:100]
        others = [domain.domain for domain in (await self.admitting())[:MAX_COMPARED]]
        error = DomainNotFound(
            f"There is no domain '{shown}'.",
            resource_type="domain",
            resource_id=shown,
            available_alternatives=close_names(shown, others),
        )
        error.denial = denied
        return error


async def cleared_for(name: str, domains: DomainStore) -> tuple[str, ...]:
    """Return the pattern of those who may be told of a domain; of one that is gone, only those cleared for any."""
    domain = await domains.find(name)
    return (f"{CLEARANCE}{HIGHEST_CLEARANCE}",) if domain is None else domain.cleared


def domain_event(event: str, domain: Domain, actor: str, /, **data: object) -> NewEvent:
    """Return what is told of a domain: to those who may look into it."""
    return NewEvent(
        type=event,
        session_id=None,
        subject=domain.domain,
        actor=actor,
        participants=domain.agents,
        readable_by=domain.cleared,
        data=data,
    )
