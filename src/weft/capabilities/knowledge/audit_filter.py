"""Hides details of domains from admins whose clearance does not cover them."""

from __future__ import annotations

import dataclasses

import msgspec

from weft.capabilities.access.audit import AuditRow
from weft.capabilities.access.grants import HIGHEST_CLEARANCE
from weft.capabilities.knowledge.domains import Domains
from weft.capabilities.knowledge.model import DomainNotFound

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
