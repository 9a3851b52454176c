"""Security events: what is published when a call breaks a rule of trust, and what stops the agent that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from weftline.access.agent_tree import disable
from weftline.access.audit import AuditRow, AuditStore
from weftline.access.sql import AccessStore
from weftline.kernel.clock import to_micros
from weftline.kernel.events import NewEvent
from weftline.kernel.fields import new_ordered_id
from weftline.kernel.identity import CLEARANCE, HUMAN, PERMISSION, SYSTEM_ID, Permission, PrincipalKind, system_actor
from weftline.kernel.outbox import Outbox
from weftline.sessions.sql import SessionStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weftline.kernel.clock import Clock
    from weftline.kernel.errors import WeftlineError
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.safety.trust.model import TrustPolicy
    from weftline.storage.sql.database import Database


# Rows of the audit log.


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


# Humans with this clearance read security events; so do admins.
READER_CLEARANCE = 3
# Violations that the caller intended, and for which a tenant's policy may stop it.
_ATTEMPTS = frozenset({"self_modification", "layer_violation"})
# Names in the context of an error that events show: which rule, never what the call contained.
_SHOWN = ("guardrail", "level", "layer", "context_id", "approval_id", "agent_id")
# Number of terminated sessions after which an agent is disabled.
_MAX_TERMINATED = 100


class PolicyReader(Protocol):
    """Returns the trust policy of a caller's tenant, as of now."""

    def __call__(self, actor: Actor) -> Awaitable[TrustPolicy]: ...


def violation_event(error: WeftlineError, action: str, actor: Actor | None, session_id: str | None) -> NewEvent:
    """Return the security event of an error: who, what and which rule, never values."""
    shown = {name: error.context[name] for name in _SHOWN if isinstance(error.context.get(name), str | int)}
    data = {"violation": error.violation, "action": action, "code": error.code, **shown}
    return NewEvent(
        type="security.violation",
        session_id=None,
        subject=actor.principal_id if actor else "",
        actor=actor.participant if actor else SYSTEM_ID,
        # Both must match: admins match the first always.
        participants=(f"{HUMAN}*",),
        readable_by=(f"{CLEARANCE}{READER_CLEARANCE}", f"{PERMISSION}{Permission.ADMIN}"),
        data=data if session_id is None else data | {"session_id": session_id},
    )


class AgentTermination:
    """Stops agents: refuses them in a session, or disables them. Takes effect in every process at once."""

    def __init__(self, database: Database, clock: Clock, on_access_changed: Callable[[str], None]) -> None:
        self._database = database
        self._clock = clock
        self._on_access_changed = on_access_changed

    async def end_session(self, actor: Actor, session_id: str | None, reason: str) -> None:
        if actor.kind is PrincipalKind.AGENT:
            await self._write(actor, lambda tx: self._end_session(tx, actor, session_id, reason))

    async def disable_agent(self, actor: Actor, reason: str) -> None:
        if actor.kind is PrincipalKind.AGENT:
            await self._write(actor, lambda tx: self._disable(tx, actor, reason))

    async def _write(self, actor: Actor, work: Callable[[Transaction], Awaitable[None]]) -> None:
        await self._database.write(Scope(actor.tenant), work)
        self._on_access_changed(actor.tenant)

    async def _end_session(self, tx: Transaction, actor: Actor, session_id: str | None, reason: str) -> None:
        session = await SessionStore(tx).find(session_id) if session_id else None
        if session is None or not (session.admits(actor) or session_id in actor.terminated_sessions):
            await self._disable(tx, actor, reason)
            return
        access = AccessStore(tx)
        ended = await access.terminate_session(actor.principal_id, session.session_id, to_micros(self._clock.now()))
        if ended is None:
            return
        await access.advance_epoch()
        if ended > _MAX_TERMINATED:
            await self._disable(tx, actor, f"It was refused in {_MAX_TERMINATED} sessions.")
        await self._record(tx, actor, "session.terminate", session.session_id, reason)
        await Outbox(tx, self._clock).publish(
            NewEvent(
                type="session.terminated",
                session_id=session.session_id,
                subject=actor.principal_id,
                actor=SYSTEM_ID,
                data={"agent_id": actor.principal_id, "reason": reason},
            )
        )

    async def _disable(self, tx: Transaction, actor: Actor, reason: str) -> None:
        access = AccessStore(tx)
        await access.lock_tree()
        principal = await access.principal(actor.principal_id)
        if principal is None or principal.disabled_at is not None:
            return
        change = await disable(principal, system_actor(actor.tenant), access, to_micros(self._clock.now()))
        await access.update_principal(change.principal)
        await access.advance_epoch()
        await self._record(tx, actor, "agent.disable", actor.principal_id, reason)

    async def _record(self, tx: Transaction, actor: Actor, action: str, target: str, reason: str) -> None:
        detail = {"agent_id": actor.principal_id, "reason": reason}
        row = audit_row(system_actor(actor.tenant), self._clock, action, "done", target, detail)
        await AuditStore(tx).add(row)


class ViolationHandler:
    """Applies the on_violation policy of the tenant to an agent that tried to change itself or the layers."""

    def __init__(self, termination: AgentTermination, policy_of: PolicyReader) -> None:
        self._termination = termination
        self._policy_of = policy_of

    async def respond(self, actor: Actor, error: WeftlineError, session_id: str | None) -> None:
        if error.violation not in _ATTEMPTS or actor.kind is not PrincipalKind.AGENT:
            return
        wanted = (await self._policy_of(actor)).on_violation
        if wanted == "end_session":
            await self._termination.end_session(actor, session_id, str(error.violation))
        elif wanted == "disable_agent":
            await self._termination.disable_agent(actor, str(error.violation))
