"""Held calls in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from weftline.kernel.correlation import Correlation
from weftline.kernel.identity import HoldReason, Permission
from weftline.kernel.packed_text import pack, text_of
from weftline.kernel.transaction import SqlStore, batches, placeholders
from weftline.safety.approvals.model import RELEASE, ApprovalState, CallResult, HeldCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.identity import Approval
    from weftline.kernel.transaction import Row, Transaction
    from weftline.safety.approvals.model import Hold

_COLUMNS = """approval_id, caller_id, caller, session_id, operation, request, digest, hold, reason, permissions,
    token_id, key_id, step, bound_session, correlation, created_at, expires_at, due_at, state, checks, decided_at,
    decided_by, decision_reason, performer, outcome, performed_at, collected_at"""
_SELECT = f"SELECT {_COLUMNS} FROM approvals WHERE tenant = $1 "  # noqa: S608 - fixed columns
_ADD = """
INSERT INTO approvals (tenant, approval_id, caller_id, caller, session_id, operation, request, request_bytes, digest,
    hold, reason, permissions, token_id, key_id, step, bound_session, correlation, created_at, expires_at, due_at,
    state, checks)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, 'pending', '[]')
ON CONFLICT DO NOTHING
"""
_PENDING = """
SELECT COUNT(*), COUNT(CASE WHEN caller_id = $1 THEN 1 END), COALESCE(SUM(request_bytes), 0),
    COALESCE(SUM(CASE WHEN caller_id = $1 THEN request_bytes ELSE 0 END), 0)
FROM approvals WHERE tenant = $2 AND state = 'pending' AND CASE WHEN operation = $3 THEN 1 ELSE 0 END = $4
"""
_DECIDE = """
UPDATE approvals SET state = $1, decided_at = $2, decided_by = $3, decision_reason = $4, checks = $5, performer = $6,
    due_at = $7
WHERE tenant = $8 AND approval_id = $9 AND state = 'pending' AND expires_at > $10
"""
_EXPIRE = """
UPDATE approvals SET state = 'expired', due_at = $1
WHERE tenant = $2 AND approval_id = $3 AND state = 'pending' AND expires_at <= $4
"""
_TAKE_OVER = """
UPDATE approvals SET performer = $1, due_at = $2
WHERE tenant = $3 AND approval_id = $4 AND state IN ('approved', 'begun') AND due_at <= $5
"""
_BEGIN = """
UPDATE approvals SET state = 'begun'
WHERE tenant = $1 AND approval_id = $2 AND performer = $3 AND state IN ('approved', 'begun')
"""
_FINISH = """
UPDATE approvals SET state = 'performed', outcome = $1, performed_at = $2, due_at = $3
WHERE tenant = $4 AND approval_id = $5 AND performer = $6 AND state IN ('approved', 'begun')
"""
_HOLD_AGAIN = """
UPDATE approvals SET state = 'pending', reason = $1, expires_at = $2, due_at = $2, performer = NULL, decided_at = NULL,
    decided_by = NULL, decision_reason = NULL
WHERE tenant = $3 AND approval_id = $4 AND performer = $5 AND state = 'approved'
"""
_STATES = f"SELECT approval_id, state FROM approvals WHERE tenant = $1 AND approval_id IN ({placeholders(2)})"  # noqa: S608
_encode = msgspec.json.Encoder().encode
_reason = msgspec.json.Decoder(HoldReason).decode
_permissions = msgspec.json.Decoder(tuple[Permission, ...]).decode
_correlation = msgspec.json.Decoder(Correlation).decode
_checks = msgspec.json.Decoder(tuple[str, ...]).decode
_outcome = msgspec.json.Decoder(CallResult).decode


class ApprovalStore(SqlStore):
    """Held calls of a tenant. Every change names the state it expects, so that only one of two decisions is made."""

    async def add(self, held: HeldCall) -> bool:
        """Add a pending call; False if an identical one of this caller is pending already."""
        return bool(
            await self._tx.changed(
                _ADD,
                self._tenant,
                held.approval_id,
                held.caller_id,
                held.caller,
                held.session_id,
                held.operation,
                pack(held.request),
                len(held.request),
                held.digest,
                held.hold,
                _text(held.reason),
                _text(held.permissions),
                held.token_id,
                held.key_id,
                held.step,
                held.bound_session,
                _text(held.correlation),
                held.created_at,
                held.expires_at,
                held.due_at,
            )
        )

    async def find(self, approval_id: str) -> HeldCall | None:
        row = await self._tx.one(_SELECT + "AND approval_id = $2", self._tenant, approval_id)
        return None if row is None else _held(row)

    async def latest(self, caller_id: str, digest: bytes) -> HeldCall | None:
        """Return the latest of identical calls of a caller."""
        row = await self._tx.one(
            _SELECT + "AND caller_id = $2 AND digest = $3 ORDER BY approval_id DESC LIMIT 1",
            self._tenant,
            caller_id,
            digest,
        )
        return None if row is None else _held(row)

    async def pending(self, caller_id: str, *, releases: bool = False) -> Pending:
        """Return how many calls wait: releases of recorded events, or all others."""
        row = await self._tx.one(_PENDING, caller_id, self._tenant, RELEASE, int(releases))
        return Pending(*map(int, cast("Row", row)))

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
        # The last state repeats, so that there is one statement.
        wanted = [*(states or ApprovalState)]
        wanted += wanted[-1:] * (len(ApprovalState) - len(wanted))
        rows = await self._tx.all(
            _SELECT
            + "AND ($2 = '' OR approval_id < $2) AND ($3 = '' OR caller_id = $3) AND ($4 = '' OR session_id = $4) "
            + f"AND state IN ({placeholders(5, len(ApprovalState))}) ORDER BY approval_id DESC "
            + f"LIMIT ${5 + len(ApprovalState)}",
            self._tenant,
            before or "",
            caller_id or "",
            session_id or "",
            *wanted,
            limit,
        )
        return [_held(row) for row in rows]

    async def states(self, approval_ids: Sequence[str]) -> dict[str, ApprovalState]:
        """Return the states of those that exist."""
        found: dict[str, ApprovalState] = {}
        for batch in batches(approval_ids):
            rows = await self._tx.all(_STATES, self._tenant, *batch)
            found |= {row[0]: ApprovalState(row[1]) for row in rows}
        return found

    async def approve(self, held: HeldCall, now: int) -> bool:
        """Store the decision and performer of ``held``; False if the call is not pending any more, or has expired."""
        return await self._decide(held, now)

    async def reject(self, held: HeldCall, now: int) -> bool:
        return await self._decide(held, now)

    async def expire(self, approval_id: str, now: int, delete_at: int) -> bool:
        """Expire a pending call that is past its time; False if it is not."""
        return bool(await self._tx.changed(_EXPIRE, delete_at, self._tenant, approval_id, now))

    async def take_over(self, approval_id: str, performer: str, now: int, until: int) -> HeldCall | None:
        """Become the performer of an approved call whose performer is past its time; None if there is none."""
        taken = await self._tx.changed(_TAKE_OVER, performer, until, self._tenant, approval_id, now)
        return await self.find(approval_id) if taken else None

    async def begin(self, approval: Approval) -> None:
        """Note in a transaction of the call that its changes are committed with it.

        Raises PerformedElsewhere if another process has taken the call over.
        """
        if not await self._tx.changed(_BEGIN, self._tenant, approval.approval_id, approval.performer):
            raise PerformedElsewhere

    async def keep(self, approval: Approval, outcome: CallResult) -> None:
        """Store the answer of a call with its changes, before guards have seen it."""
        await self._tx.run(
            "UPDATE approvals SET outcome = $1 WHERE tenant = $2 AND approval_id = $3",
            pack(_text(outcome)),
            self._tenant,
            approval.approval_id,
        )

    async def finish(self, held: HeldCall, now: int, delete_at: int) -> bool:
        """Store the final answer of a call and its performer; False if another process has taken it over."""
        return bool(
            await self._tx.changed(
                _FINISH,
                pack(_text(held.outcome)),
                now,
                delete_at,
                self._tenant,
                held.approval_id,
                held.performer,
            )
        )

    async def hold_again(self, held: HeldCall) -> bool:
        """Make an approved call pending again, for the reason and until the time that ``held`` has."""
        return bool(
            await self._tx.changed(
                _HOLD_AGAIN, _text(held.reason), held.expires_at, self._tenant, held.approval_id, held.performer
            )
        )

    async def collect(self, approval_id: str, now: int, due_at: int) -> None:
        """Note when the answer was first given to the caller, and when it is to be deleted."""
        await self._tx.run(
            "UPDATE approvals SET collected_at = $1, due_at = $2"
            " WHERE tenant = $3 AND approval_id = $4 AND collected_at IS NULL",
            now,
            due_at,
            self._tenant,
            approval_id,
        )

    async def delete_answer(self, approval_id: str, delete_at: int) -> None:
        """Delete the answer of a performed call, which may have values; the call itself is deleted later."""
        await self._tx.run(
            "UPDATE approvals SET outcome = NULL, due_at = $1 WHERE tenant = $2 AND approval_id = $3",
            delete_at,
            self._tenant,
            approval_id,
        )

    async def due(self, now: int, limit: int) -> Sequence[HeldCall]:
        """Return calls with something to do: expire, take over or delete; longest overdue first."""
        rows = await self._tx.all(
            _SELECT + "AND due_at <= $2 ORDER BY due_at, approval_id LIMIT $3", self._tenant, now, limit
        )
        return [_held(row) for row in rows]

    async def delete(self, approval_id: str) -> None:
        await self._tx.run("DELETE FROM approvals WHERE tenant = $1 AND approval_id = $2", self._tenant, approval_id)

    async def _decide(self, held: HeldCall, now: int) -> bool:
        return bool(
            await self._tx.changed(
                _DECIDE,
                held.state,
                held.decided_at,
                held.decided_by,
                held.decision_reason,
                _text(held.checks),
                held.performer,
                held.due_at,
                self._tenant,
                held.approval_id,
                now,
            )
        )


async def tenants_with_due_approvals(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants with held calls that are to be expired, taken over or deleted."""
    rows = await transaction.all(
        "SELECT tenant FROM tenants WHERE EXISTS (SELECT 1 FROM approvals a WHERE a.tenant = tenants.tenant AND"
        " a.due_at <= $1) ORDER BY tenant",
        now,
    )
    return [row[0] for row in rows]


async def erase_approvals(transaction: Transaction, session_id: str) -> None:
    """Delete the held calls of a session, except those being performed: one may be deleting the session."""
    await transaction.run(
        "DELETE FROM approvals WHERE tenant = $1 AND session_id = $2 AND state NOT IN ('approved', 'begun')",
        transaction.tenant,
        session_id,
    )


def _text(value: object) -> str:
    return _encode(value).decode()


def _held(row: Row) -> HeldCall:
    (
        approval_id,
        caller_id,
        caller,
        session_id,
        operation,
        request,
        digest,
        hold,
        reason,
        permissions,
        token_id,
        key_id,
        step,
        bound_session,
        correlation,
        created_at,
        expires_at,
        due_at,
        state,
        checks,
        decided_at,
        decided_by,
        decision_reason,
        performer,
        outcome,
        performed_at,
        collected_at,
    ) = row
    return HeldCall(
        approval_id=approval_id,
        caller_id=caller_id,
        caller=caller,
        session_id=session_id,
        operation=operation,
        request=text_of(request),
        digest=bytes(digest),
        hold=cast("Hold", hold),
        reason=_reason(reason),
        permissions=_permissions(permissions),
        token_id=token_id,
        key_id=key_id,
        step=step,
        bound_session=bound_session,
        correlation=_correlation(correlation),
        created_at=created_at,
        expires_at=expires_at,
        due_at=due_at,
        state=ApprovalState(state),
        checks=_checks(checks),
        decided_at=decided_at,
        decided_by=decided_by,
        decision_reason=decision_reason,
        performer=performer,
        outcome=None if outcome is None else _outcome(text_of(outcome)),
        performed_at=performed_at,
        collected_at=collected_at,
    )


class Pending(NamedTuple):
    """How much waits for approval: calls of the tenant, calls of one caller, bytes of all and of its requests."""

    calls: int
    of_caller: int
    size: int
    size_of_caller: int


class PerformedElsewhere(Exception):
    """Another process has taken over the performing of an approved call: this one must not commit its changes."""
