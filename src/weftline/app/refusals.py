"""Audit rows of refused callers, collapsed by address and minute.

Callers without a valid credential, and those above a rate limit, can send as much as they like. They get few rows, each
with a count: the first refusal is written at once, the others are counted in memory and added every few seconds.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.access.audit_log import AuditRow, AuditStore
from weftline.access.sql import AccessStore
from weftline.app.rate_limits import client_network
from weftline.app.security_events import violation_event
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import RateLimited, WeftlineError
from weftline.kernel.fields import new_ordered_id
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.events import SqlOutbox
from weftline.storage.sql.tenants import operator_tenant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

_log = logging.getLogger("weftline.audit")
_MINUTE = 60_000_000
# Rows of one tenant, minute and outcome; all further callers share one row.
_MAX_ROWS = 20
_MAX_OPEN = 10_000
_OTHERS = "other addresses"
_OPERATOR_TENANT_SECONDS = 60.0


class RefusalKey(NamedTuple):
    """What was refused: rows with the same values are one in the same minute."""

    action: str
    outcome: str
    code: str
    address: str | None
    principal_id: str | None
    rate_class: str = ""

    @property
    def group(self) -> tuple[str, bool]:
        """Return what limits the number of rows: known and unknown callers never take each other's."""
        return self.outcome, self.principal_id is None


@dataclass(slots=True)
class _Row:
    row: AuditRow
    count: int = 1
    written: int = 1


@dataclass(slots=True)
class _Minute:
    """Open rows of one tenant in one minute."""

    number: int
    rows: dict[RefusalKey, _Row] = field(default_factory=dict)
    by_group: Counter[tuple[str, bool]] = field(default_factory=Counter)


class Refusals:
    """Writes and counts the refusals of this process."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._minutes: dict[str, _Minute] = {}
        self._ended: list[tuple[str, _Row]] = []
        self._operator_tenant: tuple[float, str | None] | None = None

    async def note(
        self,
        tenant: str | None,
        address: str | None,
        action: str,
        error: WeftlineError,
        *,
        actor: Actor | None = None,
        outcome: str = "refused",
        target: str = "",
        key_id: str | None = None,
        is_proved: bool = True,
    ) -> None:
        """Count a refusal; the first of its kind in a minute is written at once. None: the caller named no tenant.

        Above its rate limit a caller may name any tenant (``is_proved`` is False): that is not looked up.
        """
        named = await self._existing(tenant, is_proved=is_proved)
        if named is None:
            _log.warning("refused", extra={"fields": {"action": action, "code": error.code}})
            return
        network = None if address is None else network_of(address)
        limited = str(error.context["rate_class"]) if isinstance(error, RateLimited) else ""
        refusal = RefusalKey(action, outcome, error.code, network, actor.principal_id if actor else None, limited)
        detail = {"code": error.code, "reason": error.message} | ({"key_id": key_id} if key_id else {})
        if error.violation is not None:
            detail["violation"] = error.violation
        row = self._counted(named, refusal, actor, limited or target, detail)
        if row is not None:
            _log.warning("refused", extra={"fields": {"tenant": named, "action": action, "code": error.code}})
            event = violation_event(error, action, actor, None) if error.violation else None

            async def write(transaction: Transaction) -> None:
                await AuditStore(transaction).add(row)
                if event is not None:
                    await SqlOutbox(transaction, self._clock).publish(event)

            await self._database.write(Scope(named), write)

    async def flush(self) -> None:
        """Write the counts that have changed."""
        now = to_micros(self._clock.now()) // _MINUTE
        changed, self._ended = self._ended, []
        for tenant, minute in list(self._minutes.items()):
            changed += [(tenant, each) for each in minute.rows.values()]
            if minute.number != now:
                del self._minutes[tenant]
        by_tenant: dict[str, list[_Row]] = {}
        for tenant, each in changed:
            if each.count != each.written:
                by_tenant.setdefault(tenant, []).append(each)
        for tenant, rows in by_tenant.items():
            try:
                await self._write_counts(tenant, rows)
            except WeftlineError:
                self._ended = [*self._ended, *((tenant, each) for each in rows)][-_MAX_OPEN:]
                raise

    def _counted(
        self, tenant: str, refusal: RefusalKey, actor: Actor | None, target: str, detail: dict[str, Any]
    ) -> AuditRow | None:
        """Count a refusal; return the row to add if it is the first of its kind."""
        now = to_micros(self._clock.now())
        minute = self._minute(tenant, now // _MINUTE)
        if refusal not in minute.rows and minute.by_group[refusal.group] >= _MAX_ROWS:
            target = "callers with a credential" if actor else "callers without a valid credential"
            refusal = RefusalKey("several", refusal.outcome, target, _OTHERS, None)
            actor, detail = None, {"code": "SEVERAL", "reason": "More were refused in this minute than have a row."}
        known = minute.rows.get(refusal)
        if known is not None:
            known.count += 1
            return None
        if sum(len(each.rows) for each in self._minutes.values()) >= _MAX_OPEN:
            return None
        row = AuditRow(
            audit_id=new_ordered_id(),
            at=now,
            actor=actor.participant if actor else "unknown",
            principal_id=refusal.principal_id,
            action=refusal.action,
            outcome=refusal.outcome,
            target=target,
            detail=detail | ({"address": refusal.address} if refusal.address else {}) | {"count": 1},
        )
        minute.rows[refusal] = _Row(row)
        minute.by_group[refusal.group] += 1
        return row

    def _minute(self, tenant: str, number: int) -> _Minute:
        minute = self._minutes.get(tenant)
        if minute is None or minute.number != number:
            if minute is not None:
                self._ended += [(tenant, each) for each in minute.rows.values() if each.count != each.written]
            minute = self._minutes[tenant] = _Minute(number)
        return minute

    async def _existing(self, tenant: str | None, *, is_proved: bool) -> str | None:
        """Return the tenant if it exists; for a caller that named none, the operator's."""
        if tenant is not None and tenant in self._minutes:
            return tenant
        if tenant is None or not is_proved:
            return await self._of_operator()
        epoch = await self._database.read(Scope(tenant), lambda transaction: AccessStore(transaction).epoch())
        return None if epoch is None else tenant

    async def _of_operator(self) -> str | None:
        known = self._operator_tenant
        if known is None or time.monotonic() - known[0] > _OPERATOR_TENANT_SECONDS:
            known = time.monotonic(), await self._database.read(SYSTEM, operator_tenant)
            self._operator_tenant = known
        return known[1]

    async def _write_counts(self, tenant: str, rows: Sequence[_Row]) -> None:
        counts = [each.count for each in rows]

        async def write(transaction: Transaction) -> None:
            store = AuditStore(transaction)
            for each, count in zip(rows, counts, strict=True):
                await store.replace_detail(each.row.audit_id, {**each.row.detail, "count": count})

        await self._database.write(Scope(tenant), write)
        for each, count in zip(rows, counts, strict=True):
            each.written = count


def network_of(address: str) -> str:
    """Return an address as rows show it: of IPv6 only the network, because one host has many addresses in it."""
    return str(client_network(address) or ("local" if address == "local" else "unknown"))
