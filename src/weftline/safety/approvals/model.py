"""Held calls: their states, limits and errors."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import msgspec

from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.errors import Conflict, Forbidden, NotFound, Rejected
from weftline.kernel.fields import Name
from weftline.kernel.identity import CLEARANCE, HUMAN, PERMISSION, PRINCIPAL, HoldReason, Permission, PrincipalKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation, Request
    from weftline.safety.trust.model import TrustPolicy


# Weftline asks for this call on behalf of who recorded events that are held. It is counted apart from all others: what
# an agent was told, and only recorded, must not use up the approvals of the calls that it makes.
RELEASE = "window.release"
# Pending approvals of a tenant and of one caller, and the bytes of their requests.
MAX_PENDING = 1_000
MAX_PENDING_OF_CALLER = 100
MAX_PENDING_BYTES = 64 * 2**20
MAX_PENDING_BYTES_OF_CALLER = 8 * 2**20
# An identical call within this time after its answer was given counts as a retry and gets it again.
RETRY_MICROS = 60_000_000
# A process that has not performed an approved call for this long is taken for dead, and another one performs it.
PERFORM_MICROS = 60_000_000
# Decided calls are deleted after this; longer than an answer is ever given.
KEEP_MICROS = 31 * DAY_MICROS
# Calls that fail because Weftline is temporarily unavailable are tried again for this long.
GIVE_UP_MICROS = 3_600_000_000

Hold = Literal["approval", "quarantine"]
Decision = Literal["approved", "rejected"]


class ApprovalState(StrEnum):
    """State of a held call. ``begun``: changes of the approved call are committed, its answer is not stored yet."""

    PENDING = "pending"
    APPROVED = "approved"
    BEGUN = "begun"
    PERFORMED = "performed"
    REJECTED = "rejected"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        return self in {ApprovalState.PERFORMED, ApprovalState.REJECTED, ApprovalState.EXPIRED}


class HeldError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error that a performed call was answered with; ``kind`` is its class, as ``module:name``."""

    kind: str
    code: str
    message: str
    hint: str
    context: dict[str, Any] = {}
    related: tuple[str, ...] = ()


class CallResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a performed call was answered with: the response as JSON, or an error."""

    answer: Any = None
    error: HeldError | None = None


class HeldCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that is held, or was.

    ``checks`` are those an approver has let it pass. ``digest`` is the same for identical calls of its caller.
    ``permissions`` and ``step`` are those of the credential it was made with, ``bound_session`` is that of its
    connection. ``performer`` identifies the process that performs the call until ``due_at``. ``due_at`` is when
    something is to be done: expire, take over, or delete.
    """

    approval_id: str
    caller_id: str
    caller: str
    session_id: str | None
    operation: str
    request: str
    digest: bytes
    hold: Hold
    reason: HoldReason
    created_at: int
    expires_at: int
    due_at: int
    permissions: tuple[Permission, ...] = ()
    token_id: str | None = None
    key_id: str | None = None
    step: str | None = None
    bound_session: str | None = None
    correlation: Correlation = NO_CORRELATION
    state: ApprovalState = ApprovalState.PENDING
    checks: tuple[str, ...] = ()
    decided_at: int | None = None
    decided_by: str | None = None
    decision_reason: str | None = None
    performer: str | None = None
    outcome: CallResult | None = None
    performed_at: int | None = None
    collected_at: int | None = None

    def stands_for(self, check: str, now: int) -> bool:
        """Return whether an identical call that is held by ``check`` now shares this approval."""
        match self.state:
            case ApprovalState.PENDING:
                return now < self.expires_at
            case ApprovalState.APPROVED | ApprovalState.BEGUN:
                return True
            case ApprovalState.PERFORMED:
                return now < self.answer_until
            case ApprovalState.REJECTED:
                return now < self.expires_at and check == self.reason.check
            case _:
                return False

    @property
    def has_answer(self) -> bool:
        return self.outcome is not None and self.outcome.error is None

    @property
    def delete_at(self) -> int:
        """Return when a decided call is deleted."""
        return max(self.decided_at or 0, self.performed_at or 0) + KEEP_MICROS

    @property
    def answer_until(self) -> int:
        """Return until when an identical call gets the stored answer: as long as the approval could wait at first."""
        if self.collected_at is not None:
            return self.collected_at + RETRY_MICROS
        return (self.performed_at or 0) + self.expires_at - self.created_at


ApprovalId = Annotated[Name, msgspec.Meta(description="Id of the approval.")]


class ApprovalNotFound(NotFound):
    """No approval with this id exists, or it is not yours to see."""

    code = "APPROVAL_NOT_FOUND"
    hint = "List the approvals with `approval.list`."
    related = ("approvals",)


class ApprovalClosed(Conflict):
    """This call has already been decided."""

    code = "APPROVAL_CLOSED"
    hint = "Nothing is left to do; `approval.show` shows the decision."
    related = ("approvals",)


class ApprovalPending(Conflict):
    """The call waits for the approval of a human."""

    code = "APPROVAL_PENDING"
    hint = (
        "Nothing has been done yet. Go on with other work, then make exactly the same call again, or look with "
        "`approval.show`; an approved call is performed once, and you get its answer."
    )
    related = ("approvals",)
    severity = "warning"


class ApprovalRejected(Forbidden):
    """A human has rejected this call."""

    code = "APPROVAL_REJECTED"
    hint = "Do not repeat it. Find another way, or ask the human who rejected it."
    related = ("approvals",)
    recoverable = False


class ApprovalExpired(Conflict):
    """No one decided about this call in time; nothing was done."""

    code = "APPROVAL_EXPIRED"
    hint = "Make the call again to ask again."
    related = ("approvals",)


class ApprovalInterrupted(Conflict):
    """The approved call was interrupted after its first change was committed; it is not repeated."""

    code = "APPROVAL_INTERRUPTED"
    hint = "Look at what it has changed, and make the call again if something is missing."
    related = ("approvals",)


class CallNotHoldable(Forbidden):
    """This call needs an approval, but cannot be held for one."""

    code = "APPROVAL_NOT_POSSIBLE"
    hint = "Content that streams is not stored before it is approved. Ask a human to do it."


class TooManyApprovals(Rejected):
    """Too many calls wait for approval."""

    code = "APPROVAL_LIMIT"
    hint = "Wait until some have been decided; `approval.list` lists those you may see."
    related = ("approvals",)
    http_status = 429


def digest_of(
    operation: Operation, request: Request, step: str | None = None, bound_session: str | None = None
) -> bytes:
    """Return what identifies identical calls of one caller: in the same step, on connections bound alike."""
    named = operation.name if step is None else f"{operation.name}@{step}"
    if bound_session is not None:
        named = f"{named} in {bound_session}"
    return hashlib.sha256(named.encode() + msgspec.json.encode(request, order="sorted")).digest()


def is_approver(actor: Actor, policy: TrustPolicy) -> bool:
    """Return whether the actor may decide about the calls of others: a human with the clearance, or a human admin."""
    return actor.kind is PrincipalKind.HUMAN and (actor.clearance >= policy.approver_clearance or actor.is_admin)


def event_audience(held: HeldCall, policy: TrustPolicy) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return both ACLs of an event about a held call: its approvers match both, and so does its caller."""
    caller = f"{PRINCIPAL}{held.caller_id}"
    return (
        (f"{CLEARANCE}{policy.approver_clearance}", f"{PERMISSION}{Permission.ADMIN}", caller),
        (f"{HUMAN}*", caller),
    )


# Ports of approvals: who observes held calls, and who performs approved ones.


class HeldCallObserver(Protocol):
    """Another slice that holds something for an approval: shows it to approvers, and ends it with the approval."""

    async def details(self, held: HeldCall) -> Mapping[str, Any]:
        """Return what an approver is shown besides the details of the reason, as it is now."""
        ...

    async def closed(self, held: HeldCall, decision: Literal["rejected", "expired"]) -> None:
        """Note, in the transaction of the decision, that a call will not be performed."""
        ...


class CallPerformer(Protocol):
    """Performs approved calls."""

    async def perform(self, tenant: str, held: HeldCall) -> HeldCall | None:
        """Perform a call whose performer this process is; return it with its outcome, None if it was deleted."""
        ...
