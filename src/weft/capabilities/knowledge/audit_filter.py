"""What admins are told of domains that they may not look into: that something was done, and by whom."""

from __future__ import annotations

import dataclasses

import msgspec

from weft.capabilities.access.audit import AuditRow
from weft.capabilities.access.grants import HIGHEST_CLEARANCE
from weft.capabilities.knowledge.domains import Domains
from weft.capabilities.knowledge.model import DomainNotFound

_SAYS_NO_MORE = {"domain": "not for you"}


class DomainAuditFilter(msgspec.Struct, frozen=True):
    """Leaves names of domains out of audit rows, and whatever else such rows tell of them."""

    domains: Domains

    async def shown(self, rows: list[AuditRow]) -> list[AuditRow]:
        if self.domains.actor.clearance >= HIGHEST_CLEARANCE or not any(map(_is_about_a_domain, rows)):
            return rows
        known = {domain.domain for domain in await self.domains.admitting()}
        return [row if not _is_about_a_domain(row) or row.detail.get("domain") in known else _bare(row) for row in rows]


def _is_about_a_domain(row: AuditRow) -> bool:
    return "domain" in row.detail or row.detail.get("code") == DomainNotFound.code


def _bare(row: AuditRow) -> AuditRow:
    return dataclasses.replace(row, target="", detail=_SAYS_NO_MORE)
