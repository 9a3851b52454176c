"""Service of approvals: hold a call, decide about it, expire it, on behalf of one caller and in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from weftline.access.audit import AuditRow, AuditStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.events import NewEvent
from weftline.kernel.fields import new_id, new_ordered_id
from weftline.kernel.identity import Actor
from weftline.kernel.outbox import Outbox
from weftline.safety.approvals.model import (
    KEEP_MICROS,
    MAX_PENDING,
    MAX_PENDING_BYTES,
    MAX_PENDING_BYTES_OF_CALLER,
    MAX_PENDING_OF_CALLER,
    PERFORM_MICROS,
    RELEASE,
    ApprovalClosed,
    ApprovalNotFound,
    ApprovalState,
    HeldCall,
    HeldCallObserver,
    TooManyApprovals,
    digest_of,
    event_audience,
    is_approver,
)
from weftline.safety.approvals.sql import ApprovalStore
from weftline.safety.trust.model import TrustPolicies

if TYPE_CHECKING:
    from weftline.kernel.events import EventType
    from weftline.kernel.identity import HoldReason
    from weftline.kernel.operation import Operation, Request
    from weftline.safety.approvals.model import Decision, Hold

_MICROS = 1_000_000
_VERBS = {"approved": "approve", "rejected": "reject"}


class CallToHold(NamedTuple):
    """A call that a check holds. ``session_id``: the session it belongs to, if its request does not name it."""

    operation: Operation
    request: Request
    hold: Hold
    reason: HoldReason
    session_id: str | None = None


class Approvals(msgspec.Struct, frozen=True):
    """Held calls of the caller's tenant, in one transaction."""

    actor: Actor
    store: ApprovalStore
    policies: TrustPolicies
    outbox: Outbox
    audit: AuditStore
    clock: Clock
    observer: HeldCallObserver

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def hold(self, call: CallToHold) -> HeldCall:
        """Hold a call of this caller; an identical one shares the approval that there is."""
        digest = digest_of(call.operation, call.request, self.actor.step, self.actor.bound_session)
        known = await self.store.latest(self.actor.principal_id, digest)
        if known is not None and known.stands_for(call.reason.check, self.now):
            return known
        if known is not None:
            await self.expire(known)
        held = await self._new_call(call, digest)
        await self._check_limits(held)
        if not await self.store.add(held):
            # Another transaction has just added it.
            return await self.store.latest(self.actor.principal_id, digest) or held
        await self._publish("approval.requested", held, hold=held.hold, expires_in=self._seconds_left(held))
        await self._audit(held, held.operation, "held", {"check": held.reason.check})
        return held

    async def note_unasked(self, call: CallToHold, target: str) -> None:
        """Audit a call that is held and that nobody is asked about, because too many others wait."""
        detail = {"check": call.reason.check, "code": TooManyApprovals.code}
        await self.audit.add(
            AuditRow(
                audit_id=new_ordered_id(),
                at=self.now,
                actor=self.actor.participant,
                principal_id=self.actor.principal_id,
                action=call.operation.name,
                outcome="held",
                target=target,
                detail=detail,
            )
        )

    async def find(self, approval_id: str) -> HeldCall:
        """Return a held call that the caller may see: its own, or any for approvers."""
        held = await self.store.find(approval_id)
        if held is None or not await self._may_see(held):
            raise ApprovalNotFound(
                f"There is no approval '{approval_id}'.", resource_type="approval", resource_id=approval_id
            )
        return held

    async def _may_see(self, held: HeldCall) -> bool:
        if self.actor.bound_session not in (None, held.session_id):
            return False
        return held.caller_id == self.actor.principal_id or await self.may_decide()

    async def may_decide(self) -> bool:
        return is_approver(self.actor, await self.policies.current())

    async def may_decide_about(self, approval_id: str) -> bool:
        """Tell whether a call of somebody else waits for the decision of the caller."""
        held = await self.store.find(approval_id)
        if held is None or held.state is not ApprovalState.PENDING or self.now >= held.expires_at:
            return False
        return held.caller_id != self.actor.principal_id and await self._may_see(held)

    async def approve(self, approval_id: str, reason: str | None) -> HeldCall:
        """Approve a call for this process to perform."""
        held = await self._to_decide(approval_id)
        return await self.decide(held, "approved", self.actor.participant, reason)

    async def reject(self, approval_id: str, reason: str | None) -> HeldCall:
        held = await self._to_decide(approval_id)
        return await self.decide(held, "rejected", self.actor.participant, reason)

    async def decide_by_client(self, held: HeldCall, decision: Decision, client: str) -> HeldCall | None:
        """Store what the user of the caller's own client decided; None if somebody else was faster."""
        try:
            decided = await self.decide(held, decision, client, None)
        except ApprovalClosed:
            return None
        await self._audit(decided, f"approval.{_VERBS[decision]}", "done", {"decided_by": client})
        return decided

    async def decide(self, held: HeldCall, decision: Decision, decided_by: str, reason: str | None) -> HeldCall:
        """Store a decision about a pending call; raises ApprovalClosed if there is one, or if it came too late."""
        now = self.now
        decided = replace(
            held,
            state=ApprovalState(decision),
            decided_at=now,
            decided_by=decided_by,
            decision_reason=reason,
            due_at=now + KEEP_MICROS,
        )
        if decision == "approved":
            decided = replace(
                decided,
                checks=tuple(sorted({*held.checks, held.reason.check})),
                performer=new_id("performer"),
                due_at=now + PERFORM_MICROS,
            )
        change = self.store.approve if decision == "approved" else self.store.reject
        if not await change(decided, now):
            raise _closed(await self.store.find(held.approval_id) or held, now)
        if decision == "rejected":
            await self.observer.closed(decided, "rejected")
        await self._publish("approval.decided", decided, decision=decision)
        return decided

    async def expire(self, held: HeldCall) -> bool:
        """Expire a pending call that is past its time; False if it is not."""
        if held.state is not ApprovalState.PENDING or not await self.store.expire(
            held.approval_id, self.now, self.now + KEEP_MICROS
        ):
            return False
        await self.observer.closed(held, "expired")
        await self._publish("approval.decided", held, decision="expired")
        return True

    async def hold_again(self, held: HeldCall, reason: HoldReason) -> None:
        """Make an approved call pending again: a further check holds it."""
        policy = await self.policies.current()
        expires_at = self.now + policy.approval_seconds * _MICROS
        again = replace(held, reason=reason, expires_at=expires_at)
        if await self.store.hold_again(again):
            await self._publish("approval.requested", again, hold=held.hold, expires_in=self._seconds_left(again))

    async def finish(self, held: HeldCall) -> bool:
        """Store the answer of a performed call; False if another process has taken it over."""
        outcome = held.outcome
        done = replace(held, performed_at=self.now)
        if not await self.store.finish(held, self.now, done.answer_until if done.has_answer else done.delete_at):
            return False
        failed = {} if outcome is None or outcome.error is None else {"error_code": outcome.error.code}
        await self._publish("approval.performed", held, **failed)
        return True

    async def _to_decide(self, approval_id: str) -> HeldCall:
        held = await self.find(approval_id)
        if held.caller_id == self.actor.principal_id:
            raise PermissionDenied(
                "No one decides about their own call.", hint="Ask another human with the clearance of approvers."
            )
        if held.state is not ApprovalState.PENDING:
            raise _closed(held, self.now)
        return held

    async def _new_call(self, call: CallToHold, digest: bytes) -> HeldCall:
        policy = await self.policies.current()
        now = self.now
        expires_at = now + policy.approval_seconds * _MICROS
        session_id = call.session_id or getattr(call.request, "session_id", None) or self.actor.bound_session
        return HeldCall(
            approval_id=f"approval_{new_ordered_id()}",
            caller_id=self.actor.principal_id,
            caller=self.actor.participant,
            session_id=session_id if isinstance(session_id, str) else None,
            operation=call.operation.name,
            request=msgspec.json.encode(call.request).decode(),
            digest=digest,
            hold=call.hold,
            reason=call.reason,
            created_at=now,
            expires_at=expires_at,
            due_at=expires_at,
            permissions=tuple(sorted(self.actor.permissions)),
            token_id=self.actor.token_id,
            key_id=self.actor.key_id,
            step=self.actor.step,
            bound_session=self.actor.bound_session,
            correlation=self.actor.correlation,
        )

    async def _check_limits(self, held: HeldCall) -> None:
        size = len(held.request)
        pending = await self.store.pending(held.caller_id, releases=held.operation == RELEASE)
        if pending.of_caller >= MAX_PENDING_OF_CALLER:
            message = f"{MAX_PENDING_OF_CALLER} of your calls wait for approval already."
            raise TooManyApprovals(message, limit=MAX_PENDING_OF_CALLER)
        if pending.of_caller and pending.size_of_caller + size > MAX_PENDING_BYTES_OF_CALLER:
            message = f"More than {MAX_PENDING_BYTES_OF_CALLER} bytes of your calls would wait for approval."
            raise TooManyApprovals(message, limit=MAX_PENDING_BYTES_OF_CALLER)
        if pending.calls >= MAX_PENDING or pending.size + size > MAX_PENDING_BYTES:
            raise TooManyApprovals("Too many calls of your tenant wait for approval already.", limit=MAX_PENDING)

    async def _publish(self, event_type: EventType, held: HeldCall, **data: object) -> None:
        participants, readable_by = event_audience(held, await self.policies.current())
        about = {"operation": held.operation, "agent_id": held.caller_id, "check": held.reason.check}
        in_session = {} if held.session_id is None else {"session_id": held.session_id}
        await self.outbox.publish(
            NewEvent(
                type=event_type,
                session_id=None,
                subject=held.approval_id,
                actor=self.actor.participant,
                participants=participants,
                readable_by=readable_by,
                data={**about, **in_session, **data},
            )
        )

    async def _audit(self, held: HeldCall, action: str, outcome: str, detail: dict[str, object]) -> None:
        await self.audit.add(
            AuditRow(
                audit_id=new_ordered_id(),
                at=self.now,
                actor=held.caller,
                principal_id=held.caller_id,
                action=action,
                outcome=outcome,
                target=held.approval_id,
                detail=detail,
            )
        )

    def _seconds_left(self, held: HeldCall) -> int:
        return (held.expires_at - self.now) // _MICROS


def _closed(held: HeldCall, now: int) -> ApprovalClosed:
    state = held.state
    if state is ApprovalState.PENDING and now >= held.expires_at:
        state = ApprovalState.EXPIRED
    how = "rejected" if state is ApprovalState.REJECTED else "approved"
    what = "has expired" if state is ApprovalState.EXPIRED else f"was {how} by {held.decided_by}"
    return ApprovalClosed(
        f"This call is not pending any more: it {what}.",
        approval_id=held.approval_id,
        state=shown_state(state),
    )


def shown_state(state: ApprovalState) -> ApprovalState:
    """Return the state as callers see it: ``begun`` is a detail of performing."""
    return ApprovalState.APPROVED if state is ApprovalState.BEGUN else state
