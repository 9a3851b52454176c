"""Operations on held calls: list, show, approve and reject."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec

from weftline.access.audit import AuditTrail
from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.errors import InvalidInput, PermissionDenied, invalid_cursor
from weftline.kernel.fields import Name, ShortText
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.operation import Audience, Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.ports import Transactions
from weftline.safety.approvals.model import ApprovalClosed, ApprovalId, ApprovalNotFound, ApprovalState, CallPerformer
from weftline.safety.approvals.service import Approvals, shown_state

if TYPE_CHECKING:
    from weftline.safety.approvals.model import HeldCall, HeldError

_operation = partial(operation, tool="approvals", rate=RateClass.SESSION, session=SessionUse.FINDS)
_read = partial(_operation, permission=Permission.READ)
_decision = partial(
    _operation,
    permission=Permission.WRITE,
    audience=Audience.HUMANS,
    errors=(ApprovalNotFound, ApprovalClosed, PermissionDenied),
)

State = Literal["pending", "approved", "performed", "rejected", "expired"]
# ``begun`` is a detail of performing.
_STATES = {
    "pending": (ApprovalState.PENDING,),
    "approved": (ApprovalState.APPROVED, ApprovalState.BEGUN),
    "performed": (ApprovalState.PERFORMED,),
    "rejected": (ApprovalState.REJECTED,),
    "expired": (ApprovalState.EXPIRED,),
}


class ListApprovals(Request):
    """A page of held calls."""

    state: Annotated[State | None, msgspec.Meta(description="Only in this state.")] = None
    cursor: Annotated[Name | None, msgspec.Meta(description="next_cursor of the previous page.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="At most this many.")] = 20


class ShowApproval(Request):
    """The held call to show."""

    approval_id: ApprovalId


class DecideApproval(Request):
    """The decision about a held call."""

    approval_id: ApprovalId
    reason: Annotated[ShortText | None, msgspec.Meta(description="Why, in a few words; the caller is told.")] = None


class PerformedError(Response):
    """The error that a performed call was answered with."""

    code: str
    error: str


class ApprovalInfo(Response, kw_only=True):
    """A call that waits for a decision, or what became of it. ``agent_id`` made the call; ``check`` holds it."""

    approval_id: str
    state: State
    operation: str
    agent_id: str
    hold: Literal["approval", "quarantine"]
    check: str
    reason: str
    created_at: datetime
    expires_at: datetime
    session_id: str | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None
    failed_with: PerformedError | None = None


class ApprovalList(Response):
    """Held calls, newest first; ``next_cursor`` is set while there are more."""

    approvals: list[ApprovalInfo]
    next_cursor: str | None = None


class ApprovalShown(ApprovalInfo, kw_only=True):
    """A held call with its request. ``details`` is for approvers, ``answer`` for the caller."""

    request: dict[str, Any]
    details: dict[str, Any] | None = None
    answer: Any = None


class ApprovalDecided(Response):
    """The decision. An approved call has been performed, unless a further check holds it: then ``state`` is pending."""

    on_record = ("state", "operation")

    approval_id: str
    state: State
    operation: str
    agent_id: str
    reason: str | None = None
    failed_with: PerformedError | None = None


class AuditedApprovals(msgspec.Struct, frozen=True):
    """Held calls in one transaction, with the audit rows of their approver."""

    approvals: Approvals
    audit: AuditTrail


@_read("approval.list", action="list", http="GET /v1/approvals", effect=Effect.READ, errors=(InvalidInput,))
async def list_approvals(request: ListApprovals, approvals: Approvals) -> ApprovalList:
    """List calls that wait for approval or were decided: all for approvers, otherwise your own."""
    if request.cursor is not None and not request.cursor.startswith("approval_"):
        raise invalid_cursor("cursor")
    page = await approvals.store.newest(
        request.cursor,
        request.limit + 1,
        caller_id=None if await approvals.may_decide() else approvals.actor.principal_id,
        session_id=approvals.actor.bound_session,
        states=() if request.state is None else _STATES[request.state],
    )
    shown = page[: request.limit]
    more = len(page) > request.limit
    return ApprovalList(
        approvals=[ApprovalInfo(**_info(held)) for held in shown],
        next_cursor=shown[-1].approval_id if more else None,
    )


@_read(
    "approval.show",
    action="show",
    http="GET /v1/approvals/{approval_id}",
    effect=Effect.OWN_TRANSACTIONS,
    errors=(ApprovalNotFound,),
)
async def show_approval(
    request: ShowApproval, actor: Actor, transactions: Transactions[AuditedApprovals]
) -> ApprovalShown:
    """Show a held call with its request; its caller also sees the answer. Views of others are audited."""

    async def find(audited: AuditedApprovals) -> HeldCall:
        return await audited.approvals.find(request.approval_id)

    async def view(audited: AuditedApprovals) -> tuple[HeldCall, dict[str, Any]]:
        held = await find(audited)
        await audited.audit.record(show_approval, request)
        return held, {**held.reason.details, **await audited.approvals.observer.details(held)}

    held = await transactions.read(actor, find)
    is_caller = held.caller_id == actor.principal_id
    details: dict[str, Any] | None = None
    if not is_caller:
        # Committed before anything is shown.
        held, details = await transactions.write(actor, view)
    outcome = held.outcome if held.state is ApprovalState.PERFORMED else None
    return ApprovalShown(
        **_info(held),
        request=msgspec.json.decode(held.request),
        details=details,
        answer=outcome.answer if is_caller and outcome is not None else None,
    )


@_decision(
    "approval.approve",
    action="approve",
    http="POST /v1/approvals/{approval_id}/approve",
    effect=Effect.OWN_TRANSACTIONS,
)
async def approve_call(
    request: DecideApproval, actor: Actor, transactions: Transactions[AuditedApprovals], performer: CallPerformer
) -> ApprovalDecided:
    """Approve a held call: it is performed once, as its caller, past the check that held it."""

    async def approve(audited: AuditedApprovals) -> HeldCall:
        held = await audited.approvals.approve(request.approval_id, request.reason)
        await audited.audit.record(approve_call, request, _decided(held))
        return held

    approved = await transactions.write(actor, approve)
    return _decided(await performer.perform(actor.tenant, approved) or approved)


@_decision(
    "approval.reject",
    action="reject",
    http="POST /v1/approvals/{approval_id}/reject",
    effect=Effect.WRITE,
    audited=True,
)
async def reject_call(request: DecideApproval, approvals: Approvals) -> ApprovalDecided:
    """Reject a held call: it is never performed, and its caller is told."""
    return _decided(await approvals.reject(request.approval_id, request.reason))


def _info(held: HeldCall) -> dict[str, Any]:
    return {
        "approval_id": held.approval_id,
        "state": _shown_state(held),
        "operation": held.operation,
        "agent_id": held.caller_id,
        "hold": held.hold,
        "check": held.reason.check,
        "reason": held.reason.text,
        "created_at": from_micros(held.created_at),
        "expires_at": from_micros(held.expires_at),
        "session_id": held.session_id,
        "decided_by": held.decided_by,
        "decided_at": optional_datetime(held.decided_at),
        "decision_reason": held.decision_reason,
        "failed_with": _failure(held),
    }


def _decided(held: HeldCall) -> ApprovalDecided:
    again = held.reason.text if held.state is ApprovalState.PENDING else None
    return ApprovalDecided(
        approval_id=held.approval_id,
        state=_shown_state(held),
        operation=held.operation,
        agent_id=held.caller_id,
        reason=again,
        failed_with=_failure(held),
    )


def _shown_state(held: HeldCall) -> State:
    return cast("State", shown_state(held.state).value)


def _failure(held: HeldCall) -> PerformedError | None:
    error: HeldError | None = None if held.outcome is None else held.outcome.error
    return None if error is None else PerformedError(code=error.code, error=error.message)
