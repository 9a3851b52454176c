"""Writes the audit log: acts in the transaction of the change, denials in their own."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from weft.capabilities.access.audit import AuditRow
from weft.kernel.clock import to_micros
from weft.kernel.fields import new_ordered_id
from weft.storage.sql.access import SqlAuditStore
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from weft.app.refusals import Refusals
    from weft.kernel.clock import Clock
    from weft.kernel.errors import WeftError
    from weft.kernel.identity import Actor
    from weft.kernel.operation import Operation, Request, Response
    from weft.storage.sql.database import Database, Transaction

_log = logging.getLogger("weft.audit")
_MINUTE = 60_000_000
# Denials of one caller in a minute that have a row each.
_MAX_DENIALS = 60


class CallAuditTrail:
    """Audit rows of one actor's acts, in the transaction that makes them true."""

    def __init__(self, transaction: Transaction, actor: Actor, clock: Clock) -> None:
        self._store = SqlAuditStore(transaction)
        self._actor = actor
        self._clock = clock

    async def record(self, operation: Operation, request: Request, response: Response | None = None) -> None:
        given = msgspec.structs.asdict(request)
        off_record = {"api_key", *operation.off_record}
        detail = {name: value for name, value in given.items() if value is not None and name not in off_record}
        if response is not None:
            detail |= {name: getattr(response, name) for name in response.on_record}
        targets = [str(detail.pop(name)) for name in list(detail) if name.endswith("_id") or name in {"name", "label"}]
        target = "/".join(targets)
        await self._store.add(
            _row(self._actor, self._clock, operation.name, "done", target, msgspec.to_builtins(detail))
        )


class Auditor:
    """Writes audit rows: acts in the caller's transaction, denials in one of their own."""

    def __init__(self, database: Database, clock: Clock, refusals: Refusals) -> None:
        self._database = database
        self._clock = clock
        self._refusals = refusals
        # Denials of each caller in the current minute.
        self._minute = 0
        self._denials: Counter[tuple[str, str]] = Counter()

    def trail(self, transaction: Transaction, actor: Actor) -> CallAuditTrail:
        return CallAuditTrail(transaction, actor, self._clock)

    async def denied(self, tenant: str, actor: Actor, action: str, error: WeftError) -> None:
        """Audit a denial. Of a caller with very many in one minute, they are counted instead."""
        if self._is_flood(tenant, actor.principal_id):
            await self._refusals.note(tenant, None, action, error, actor=actor, outcome="denied")
            return
        _log.warning("denied", extra={"fields": {"tenant": tenant, "action": action, "code": error.code}})
        row = _row(actor, self._clock, action, "denied", "", {"code": error.code, "reason": error.message})
        await self._database.write(Scope(tenant), lambda transaction: SqlAuditStore(transaction).add(row))

    def _is_flood(self, tenant: str, principal_id: str) -> bool:
        minute = to_micros(self._clock.now()) // _MINUTE
        if minute != self._minute:
            self._minute = minute
            self._denials.clear()
        self._denials[tenant, principal_id] += 1
        return self._denials[tenant, principal_id] > _MAX_DENIALS


def _row(actor: Actor, clock: Clock, action: str, outcome: str, target: str, detail: dict[str, Any]) -> AuditRow:
    return AuditRow(
        audit_id=new_ordered_id(),
        at=to_micros(clock.now()),
        actor=actor.participant,
        principal_id=actor.principal_id,
        action=action,
        outcome=outcome,
        target=target,
        detail=detail,
    )
