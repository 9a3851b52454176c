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

import msgspec

from weftline.access.audit import AuditRow, AuditStore
from weftline.access.sql import AccessStore
from weftline.app.rate_limits import client_network
from weftline.app.security_events import audit_row, violation_event
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import RateLimited, WeftlineError
from weftline.kernel.fields import new_ordered_id
from weftline.kernel.outbox import Outbox
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.tenants import operator_tenant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.app.security_events import ViolationHandler
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation, Request, Response
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database


# Writes the audit log: acts in the transaction of the change, denials in their own.

_log = logging.getLogger("weftline.audit")
_MINUTE = 60_000_000
# Denials of one caller in a minute that have a row each.
_MAX_DENIALS = 60
# Longer texts are no ids.
_MAX_ID = 200
# Security events of one caller in a minute; further violations are only audited.
_MAX_EVENTS = 10


def _names_target(name: str) -> bool:
    return name.endswith("_id") or name in {"name", "label", "domain", "team"}


def _denied_target(action: str, named: Mapping[str, Any]) -> str:
    """Return the ids that a refused request named, which nobody has validated. Keys of private memory are private."""
    is_private = action.partition(".")[0] in {"memory", "context"}
    return "/".join(
        value
        for name, value in named.items()
        if (_names_target(name) or (name == "key" and not is_private))
        and isinstance(value, str)
        and 0 < len(value) <= _MAX_ID
        and value.isprintable()
    )


class CallAuditTrail:
    """Audit rows of one actor's acts, in the transaction that makes them true."""

    def __init__(self, transaction: Transaction, actor: Actor, clock: Clock) -> None:
        self._store = AuditStore(transaction)
        self._outbox = Outbox(transaction, clock, actor.correlation, actor.principal_id)
        self._actor = actor
        self._clock = clock

    async def record(self, operation: Operation, request: Request, response: Response | None = None) -> None:
        given = msgspec.structs.asdict(request)
        off_record = {"api_key", *operation.off_record}
        detail = {name: value for name, value in given.items() if value is not None and name not in off_record}
        if response is not None:
            detail |= {name: getattr(response, name) for name in response.on_record}
        if (approval := self._actor.approval) is not None:
            detail |= {"approval": approval.approval_id, "approved_by": approval.approved_by}
        target = "/".join(str(value) for name, value in detail.items() if _names_target(name))
        # What the target says is not repeated; who may see a domain is decided by the detail.
        detail = {name: value for name, value in detail.items() if name == "domain" or not _names_target(name)}
        await self._store.add(
            audit_row(self._actor, self._clock, operation.name, "done", target, msgspec.to_builtins(detail))
        )

    async def note_violation(self, action: str, error: WeftlineError, session_id: str | None) -> None:
        detail = {"code": error.code, "reason": error.message, "violation": error.violation}
        await self._store.add(audit_row(self._actor, self._clock, action, "denied", session_id or "", detail))
        await self._outbox.publish(violation_event(error, action, self._actor, session_id))


class Auditor:
    """Writes audit rows: acts in the caller's transaction, denials in one of their own."""

    def __init__(self, database: Database, clock: Clock, refusals: Refusals, response: ViolationHandler) -> None:
        self._database = database
        self._clock = clock
        self._refusals = refusals
        self._response = response
        # Denials of each caller in the current minute.
        self._minute = 0
        self._denials: Counter[tuple[str, str]] = Counter()
        # Published security events of the current minute, by caller: what they were about.
        self._events: dict[tuple[str, str], set[tuple[str | None, str]]] = {}

    def trail(self, transaction: Transaction, actor: Actor) -> CallAuditTrail:
        return CallAuditTrail(transaction, actor, self._clock)

    async def denied(
        self,
        tenant: str,
        actor: Actor,
        action: str,
        error: WeftlineError,
        named: Mapping[str, Any],
        *,
        session_id: str | None = None,
    ) -> None:
        """Audit a denial or violation; do with the caller what the tenant's policy says about violations.

        ``named`` are the fields of the request, of which the row keeps the ids.
        """
        await self._record(tenant, actor, action, error, named, session_id)
        await self._response.respond(actor, error, session_id)

    async def _record(
        self,
        tenant: str,
        actor: Actor,
        action: str,
        error: WeftlineError,
        named: Mapping[str, Any],
        session_id: str | None,
    ) -> None:
        """Write a row and the event of a violation. Of a caller with very many in one minute, they are counted."""
        if self._is_flood(tenant, actor.principal_id):
            await self._refusals.note(tenant, None, action, error, actor=actor, outcome="denied")
            return
        _log.warning("denied", extra={"fields": {"tenant": tenant, "action": action, "code": error.code}})
        detail = {"code": error.code, "reason": error.message}
        if error.violation is not None:
            detail["violation"] = error.violation
        if isinstance(named.get("domain"), str):
            # Readers who may not see the domain do not see what the row says of it.
            detail["domain"] = named["domain"]
        row = audit_row(actor, self._clock, action, "denied", _denied_target(action, named), detail)
        event = (
            violation_event(error, action, actor, session_id) if self._is_new(tenant, actor, error, action) else None
        )

        async def write(transaction: Transaction) -> None:
            await AuditStore(transaction).add(row)
            if event is not None:
                outbox = Outbox(transaction, self._clock, actor.correlation, actor.principal_id)
                await outbox.publish(event)

        await self._database.write(Scope(tenant, principal=actor.path), write)

    def _is_new(self, tenant: str, actor: Actor, error: WeftlineError, action: str) -> bool:
        """Tell whether a violation is published: the first of its kind by a caller in this minute, and not too many."""
        if error.violation is None:
            return False
        known = self._events.setdefault((tenant, actor.principal_id), set())
        about = (error.violation, action)
        if about in known or len(known) >= _MAX_EVENTS:
            return False
        known.add(about)
        return True

    def _is_flood(self, tenant: str, principal_id: str) -> bool:
        minute = to_micros(self._clock.now()) // _MINUTE
        if minute != self._minute:
            self._minute = minute
            self._denials.clear()
            self._events.clear()
        self._denials[tenant, principal_id] += 1
        return self._denials[tenant, principal_id] > _MAX_DENIALS


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
                    await Outbox(transaction, self._clock).publish(event)

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
