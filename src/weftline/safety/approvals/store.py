"""Ports of approvals: the store of held calls, the tenant's policy, and who performs approved calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.approval import Approval
    from weftline.safety.approvals.model import ApprovalState, CallResult, HeldCall


class Pending(NamedTuple):
    """How much waits for approval: calls of the tenant, calls of one caller, bytes of all and of its requests."""

    calls: int
    of_caller: int
    size: int
    size_of_caller: int


class ApprovalStore(Protocol):
    """Held calls of a tenant. Every change names the state it expects, so that only one of two decisions is made."""

    async def add(self, held: HeldCall) -> bool:
        """Add a pending call; False if an identical one of this caller is pending already."""
        ...

    async def find(self, approval_id: str) -> HeldCall | None: ...

    async def latest(self, caller_id: str, digest: bytes) -> HeldCall | None:
        """Return the latest of identical calls of a caller."""
        ...

    async def pending(self, caller_id: str, *, releases: bool = False) -> Pending:
        """Return how many calls wait: releases of recorded events, or all others."""
        ...

    async def newest(
        self,
        before: str | None,
        limit: int,
        *,
        caller_id: str | None,
        session_id: str | None = None,
        states: Sequence[ApprovalState],
    ) -> Sequence[HeldCall]:
        """Return calls newest first, older than ``before``; of one caller or session, and in some states, if given."""
        ...

    async def states(self, approval_ids: Sequence[str]) -> dict[str, ApprovalState]:
        """Return the states of those that exist."""
        ...

    async def approve(self, held: HeldCall, now: int) -> bool:
        """Store the decision and performer of ``held``; False if the call is not pending any more, or has expired."""
        ...

    async def reject(self, held: HeldCall, now: int) -> bool: ...

    async def expire(self, approval_id: str, now: int, delete_at: int) -> bool:
        """Expire a pending call that is past its time; False if it is not."""
        ...

    async def take_over(self, approval_id: str, performer: str, now: int, until: int) -> HeldCall | None:
        """Become the performer of an approved call whose performer is past its time; None if there is none."""
        ...

    async def begin(self, approval: Approval) -> None:
        """Note in a transaction of the call that its changes are committed with it.

        Raises PerformedElsewhere if another process has taken the call over.
        """
        ...

    async def keep(self, approval: Approval, outcome: CallResult) -> None:
        """Store the answer of a call with its changes, before guards have seen it."""
        ...

    async def finish(self, held: HeldCall, now: int, delete_at: int) -> bool:
        """Store the final answer of a call and its performer; False if another process has taken it over."""
        ...

    async def hold_again(self, held: HeldCall) -> bool:
        """Make an approved call pending again, for the reason and until the time that ``held`` has."""
        ...

    async def collect(self, approval_id: str, now: int, due_at: int) -> None:
        """Note when the answer was first given to the caller, and when it is to be deleted."""
        ...

    async def delete_answer(self, approval_id: str, delete_at: int) -> None:
        """Delete the answer of a performed call, which may have values; the call itself is deleted later."""
        ...

    async def due(self, now: int, limit: int) -> Sequence[HeldCall]:
        """Return calls with something to do: expire, take over or delete; longest overdue first."""
        ...

    async def delete(self, approval_id: str) -> None: ...


class PerformedElsewhere(Exception):
    """Another process has taken over the performing of an approved call: this one must not commit its changes."""


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
