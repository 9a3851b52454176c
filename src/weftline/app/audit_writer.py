"""Writes the audit log: acts in the transaction of the change, denials in their own."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.access.audit_log import AuditStore
from weftline.app.audit_rows import audit_row
from weftline.app.security_events import violation_event
from weftline.kernel.clock import to_micros
from weftline.storage.sql.database import Scope
from weftline.storage.sql.events import SqlOutbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.app.refusals import Refusals
    from weftline.app.security_events import ViolationHandler
    from weftline.kernel.clock import Clock
    from weftline.kernel.errors import WeftlineError
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation, Request, Response
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

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
        self._outbox = SqlOutbox(transaction, clock, actor.correlation, actor.principal_id)
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
                outbox = SqlOutbox(transaction, self._clock, actor.correlation, actor.principal_id)
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
