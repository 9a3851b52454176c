"""Service for the domains that a caller can see."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from weftline.access.audit import AuditRow
from weftline.access.grants import HIGHEST_CLEARANCE
from weftline.access.plan_warnings import Plans, QuotaWarnings
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import MAX_COMPARED, close_names
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import CLEARANCE, Actor
from weftline.kernel.outbox import Outbox
from weftline.knowledge.model import Domain, DomainNotFound, can_see, may_review
from weftline.knowledge.sql import DomainStore
from weftline.safety.trust.gate import ContentGate, IncomingContent


class Domains(msgspec.Struct, frozen=True):
    """Domains of the caller's tenant. A domain that the caller cannot see is reported as not found."""

    actor: Actor
    domains: DomainStore
    plans: Plans
    quota_warnings: QuotaWarnings
    outbox: Outbox
    clock: Clock
    gate: ContentGate

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def may_review(self, domain: Domain) -> bool:
        """Tell whether the caller may see what is held for review in a domain."""
        return may_review(domain, self.actor, await self.gate.policies.current())

    async def described(self, name: str, description: str) -> str:
        """Return a description as the gate admits it."""
        return (await self.gate.admit(IncomingContent("domain", name, description))).text

    async def find(self, name: str) -> Domain:
        return await self._require_visible(name, await self.domains.find(name))

    async def lock(self, name: str) -> Domain:
        """Return a domain with a row lock, for changes of the domain or its counts."""
        return await self._require_visible(name, await self.domains.find_locked(name))

    async def visible(self) -> Sequence[Domain]:
        """Return the domains that the caller can see, by name."""
        return [domain for domain in await self.domains.all() if can_see(domain, self.actor)]

    async def publish(self, event: NewEvent) -> None:
        await self.outbox.publish(event)

    async def readdress(self, domain: Domain) -> None:
        """Update the ACL of past events of a domain to its current one."""
        for family in ("domain", "document"):
            await self.outbox.readdress_family(family, domain.domain, domain.agents, domain.cleared)

    async def _require_visible(self, name: str, domain: Domain | None) -> Domain:
        if domain is None or not can_see(domain, self.actor):
            raise await self._not_found(name, denied=domain is not None)
        return domain

    async def _not_found(self, name: str, *, denied: bool) -> DomainNotFound:
        shown = name[:100]
        others = [domain.domain for domain in (await self.visible())[:MAX_COMPARED]]
        error = DomainNotFound(
            f"There is no domain '{shown}'.",
            resource_type="domain",
            resource_id=shown,
            available_alternatives=close_names(shown, others),
        )
        error.denial = denied
        return error


async def cleared_for(name: str, domains: DomainStore) -> tuple[str, ...]:
    """Return the read ACL of events about a domain; of a deleted one, the highest clearance."""
    domain = await domains.find(name)
    return (f"{CLEARANCE}{HIGHEST_CLEARANCE}",) if domain is None else domain.cleared


def domain_event(event: EventType, domain: Domain, actor: str, /, **data: object) -> NewEvent:
    """Return an event about a domain, readable by those who can see it."""
    return NewEvent(
        type=event,
        session_id=None,
        subject=domain.domain,
        actor=actor,
        participants=domain.agents,
        readable_by=domain.cleared,
        data=data,
    )


_HIDDEN = {"domain": "hidden"}


class DomainAuditFilter(msgspec.Struct, frozen=True):
    """Removes target and details from audit rows about domains that the caller cannot see."""

    domains: Domains

    async def shown(self, rows: list[AuditRow]) -> list[AuditRow]:
        if self.domains.actor.clearance >= HIGHEST_CLEARANCE or not any(map(_is_about_a_domain, rows)):
            return rows
        known = {domain.domain for domain in await self.domains.visible()}
        return [
            row if not _is_about_a_domain(row) or row.detail.get("domain") in known else _redacted(row) for row in rows
        ]


def _is_about_a_domain(row: AuditRow) -> bool:
    return "domain" in row.detail or row.detail.get("code") == DomainNotFound.code


def _redacted(row: AuditRow) -> AuditRow:
    return dataclasses.replace(row, target="", detail=_HIDDEN)
