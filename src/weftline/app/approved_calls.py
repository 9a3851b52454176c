"""Performs approved calls, exactly once; expires and deletes held calls. A killed process is taken over by another.

The changes of a call are committed in the same transaction as the note that they were made (``begin``), and only by its
current performer. A process that is killed before leaves the call to be performed; one that is killed after leaves its
answer to be released.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from weftline.access.sql import AccessStore
from weftline.app.authentication import InStep, Local
from weftline.app.held_calls import stored_error
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import AuthenticationError, InternalError, Unavailable, WeftlineError
from weftline.kernel.fields import new_id
from weftline.kernel.identity import Approval, HoldReason
from weftline.safety.approvals.model import (
    GIVE_UP_MICROS,
    PERFORM_MICROS,
    ApprovalInterrupted,
    ApprovalState,
    CallResult,
    HeldCall,
)
from weftline.safety.approvals.service import Approvals
from weftline.safety.approvals.sql import ApprovalStore, PerformedElsewhere
from weftline.storage.sql.database import AccessChanged, Scope
from weftline.storage.sql.unit_of_work import SystemTransactions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.access.model import StoredKey, StoredToken
    from weftline.app.authentication import Authenticator
    from weftline.app.dispatch import Dispatcher
    from weftline.app.wiring import Container
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation, Registry
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database

ADVANCE = "approvals.advance"
# While a call waits for its decision in this process.
ADVANCE_SOON_SECONDS = 1.0
ADVANCE_EVERY_SECONDS = 15.0
_BATCH = 50
_MAX_TRIES = 5
_log = logging.getLogger("weftline.approvals")


class ApprovedCalls:
    """Performs the approved calls of any tenant."""

    def __init__(
        self,
        database: Database,
        container: Container,
        clock: Clock,
        registry: Registry,
        dispatcher: Dispatcher,
        callers: Authenticator,
    ) -> None:
        self._database = database
        self._transactions = SystemTransactions(database, container, Approvals)
        self._clock = clock
        self._registry = registry
        self._dispatcher = dispatcher
        self._callers = callers

    @property
    def now(self) -> int:
        return to_micros(self._clock.now())

    async def perform(self, tenant: str, held: HeldCall) -> HeldCall | None:
        """Perform a call whose performer this process is, and return it as it is then; None if it was deleted."""
        try:
            outcome = await self._outcome(tenant, held)
        except PerformedElsewhere:
            pass
        except _HeldAgain as again:
            reason = again.reason
            await self._transactions.write(tenant, lambda approvals: approvals.hold_again(held, reason))
        except Unavailable:
            # Tried again by the job.
            _log.warning("approved call postponed", extra={"fields": {"tenant": tenant, "operation": held.operation}})
        else:
            done = replace(held, outcome=outcome)
            await self._transactions.write(tenant, lambda approvals: approvals.finish(done))
        return await self._database.read(Scope(tenant), lambda tx: ApprovalStore(tx).find(held.approval_id))

    async def advance(self, tenant: str) -> bool:
        """Expire, take over or delete what is due; return whether there may be more."""
        now = self.now
        due = await self._database.read(Scope(tenant), lambda tx: ApprovalStore(tx).due(now, _BATCH))
        for held in due:
            await self._advance(tenant, held)
        return len(due) == _BATCH

    async def _advance(self, tenant: str, held: HeldCall) -> None:
        if held.state is ApprovalState.PENDING:
            await self._transactions.write(tenant, lambda approvals: approvals.expire(held))
        elif held.state.is_final:
            await self._database.write(Scope(tenant), lambda tx: _forget(ApprovalStore(tx), held))
        else:
            taken = await self._database.write(Scope(tenant), lambda tx: self._take_over(tx, held.approval_id))
            if taken is not None:
                await self.perform(tenant, taken)

    async def _take_over(self, transaction: Transaction, approval_id: str) -> HeldCall | None:
        now = self.now
        return await ApprovalStore(transaction).take_over(approval_id, new_id("performer"), now, now + PERFORM_MICROS)

    async def _outcome(self, tenant: str, held: HeldCall) -> CallResult:
        """Return what the call is answered with; raises what leaves it unanswered."""
        try:
            answer = await self._answer(tenant, held)
        except Unavailable as error:
            if self.now < (held.decided_at or 0) + GIVE_UP_MICROS:
                raise
            return CallResult(error=stored_error(error))
        except WeftlineError as error:
            if error.hold is not None:
                raise _HeldAgain(error) from error
            return CallResult(error=stored_error(error))
        except (PerformedElsewhere, asyncio.CancelledError):
            raise
        except Exception:  # noqa: BLE001 - the caller is answered INTERNAL_ERROR
            _log.exception("approved call failed", extra={"fields": {"operation": held.operation}})
            return CallResult(error=stored_error(InternalError()))
        return CallResult(msgspec.to_builtins(answer))

    async def _answer(self, tenant: str, held: HeldCall) -> Any:  # noqa: ANN401 - a response of the operation
        operation, raw = self._registry[held.operation], msgspec.json.decode(held.request)
        for _ in range(_MAX_TRIES):
            actor = await self._caller(tenant, held)
            try:
                if held.state is ApprovalState.BEGUN:
                    return await self._released(operation, raw, actor, held)
                return await self._dispatcher.perform_approved(operation, raw, actor)
            except AccessChanged:
                self._callers.forget(_credential(tenant, held))
        raise AuthenticationError("The caller's access is being changed right now.")

    async def _released(self, operation: Operation, raw: Mapping[str, Any], actor: Actor, held: HeldCall) -> Any:  # noqa: ANN401 - likewise
        """Return the answer of a call whose changes a process committed that was gone before it could answer."""
        if held.outcome is None:
            raise ApprovalInterrupted
        answer = msgspec.convert(held.outcome.answer, operation.response)
        return await self._dispatcher.guard_answer(operation, raw, actor, answer)

    async def _caller(self, tenant: str, held: HeldCall) -> Actor:
        """Return the caller with the rights it has now, as far as the credential of its call had them."""
        await self._check_credential(tenant, held)
        actor = await self._callers.identify(_credential(tenant, held))
        return replace(
            actor if held.bound_session is None else actor.bound_to(held.bound_session),
            permissions=actor.permissions & frozenset(held.permissions),
            correlation=held.correlation,
            approval=Approval(held.approval_id, frozenset(held.checks), held.decided_by or "", held.performer or ""),
        )

    async def _check_credential(self, tenant: str, held: HeldCall) -> None:
        """Refuse a call whose token or key was revoked since; one that has expired meanwhile was valid for the call."""
        if held.token_id is not None:
            token = await self._database.read(Scope(tenant), partial(_token, held.token_id))
            if token is None or token.revoked_at is not None:
                raise AuthenticationError("The token of this call has been revoked.")
        if held.key_id is not None:
            key = await self._database.read(Scope(tenant), partial(_key, held.key_id))
            if key is None or key.revoked_at is not None:
                raise AuthenticationError("The API key of this call has been revoked.")


async def _token(token_id: str, transaction: Transaction) -> StoredToken | None:
    return await AccessStore(transaction).token(token_id)


async def _key(key_id: str, transaction: Transaction) -> StoredKey | None:
    return await AccessStore(transaction).key(key_id)


def _credential(tenant: str, held: HeldCall) -> Local | InStep:
    """Return the caller of a held call, within the step of its credential."""
    caller = Local(tenant, held.caller_id)
    return caller if held.step is None else InStep(caller, held.step)


async def _forget(store: ApprovalStore, held: HeldCall) -> None:
    """Delete the answer of a decided call, then the call itself."""
    if held.has_answer:
        await store.delete_answer(held.approval_id, held.delete_at)
    else:
        await store.delete(held.approval_id)


class _HeldAgain(Exception):
    """A further check holds an approved call."""

    def __init__(self, error: WeftlineError) -> None:
        super().__init__()
        self.reason = error.hold_reason or HoldReason(check=error.code, text=error.message)
