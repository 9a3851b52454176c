"""Rows of the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.access.audit_log import AuditRow
from weftline.kernel.clock import to_micros
from weftline.kernel.fields import new_ordered_id

if TYPE_CHECKING:
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor


def audit_row(actor: Actor, clock: Clock, action: str, outcome: str, target: str, detail: dict[str, Any]) -> AuditRow:
    """Return a row about what an actor did or was denied."""
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
