"""Held calls: stores a call that a check holds, lets its caller wait for a decision, and gives it the stored answer."""

from __future__ import annotations

import asyncio
import contextlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import structs

from weftline.kernel.clock import to_micros
from weftline.kernel.errors import InternalError, WeftlineError
from weftline.kernel.identity import HoldReason
from weftline.safety.approvals.model import (
    ApprovalExpired,
    ApprovalPending,
    ApprovalRejected,
    ApprovalState,
    CallNotHoldable,
    HeldError,
)
from weftline.safety.approvals.service import Approvals, CallToHold
from weftline.safety.approvals.sql import ApprovalStore
from weftline.storage.sql.database import Scope, caller_scope
from weftline.storage.sql.unit_of_work import logged_write

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.app.event_feed import LiveFeed
    from weftline.app.wiring import Container
    from weftline.kernel.clock import Clock
    from weftline.kernel.guards import GuardedCall
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation
    from weftline.kernel.transaction import Transaction
    from weftline.safety.approvals.model import CallPerformer, Decision, HeldCall
    from weftline.storage.sql.database import Database

# Calls that wait in one process, of one tenant and in all; further ones are answered at once.
MAX_WAITING_OF_TENANT = 100
MAX_WAITING = 2_000
MAX_WAIT_SECONDS = 300
# Decisions of a tenant are read at most this often, and at least every second in case a wake-up was lost.
_PAUSE_SECONDS = 0.02
_POLL_SECONDS = 1.0
_CLIENT = "client of "
_APPROVAL = "approval"

# ``deferred``: the client is asked with the answer to this call.
ClientAnswer = Literal["approved", "rejected", "unanswered", "deferred"]


class ClientApprover(Protocol):
    """Asks the user of the caller's own client."""

    async def ask(self, held: HeldCall) -> ClientAnswer: ...


class HeldCalls:
    """Holds calls of this process."""

    def __init__(
        self, database: Database, container: Container, clock: Clock, feed: LiveFeed, wait_seconds: float
    ) -> None:
        self._database = database
        self._container = container
        self._clock = clock
        self._wait_seconds = min(wait_seconds, MAX_WAIT_SECONDS)
        self.decisions = Decisions(database, feed)
        # Set by the composition root: performing needs the dispatcher, which needs this.
        self.performer: CallPerformer | None = None

    async def answer(self, call: GuardedCall, error: WeftlineError, client: ClientApprover | None) -> Any:  # noqa: ANN401
        """Hold a call and return the answer of its performing, or raise why there is none (yet)."""
        actor, hold = call.actor, error.hold
        if actor is None or hold is None or call.approval is not None:
            raise error
        reason = error.hold_reason or HoldReason(check=error.code, text=error.message)
        if call.entry != "call" or call.operation.group == _APPROVAL:
            raise error if hold == "quarantine" else _not_holdable(call, reason)
        held = await self._write(actor, lambda held: held.hold(CallToHold(call.operation, call.request, hold, reason)))
        if hold == "approval" and not held.state.is_final:
            held = await self._waited(actor, held, client if held.reason.approver == "client" else None)
        if hold == "quarantine" and held.state is ApprovalState.PENDING:
            error.message += f" It waits for review as {held.approval_id}."
            error.context["approval_id"] = held.approval_id
            raise error
        return await self._given(call.operation, actor, held)

    async def _waited(self, actor: Actor, held: HeldCall, client: ClientApprover | None) -> HeldCall:
        """Wait for a decision and its performing, and return the call as it is then.

        A client that shows the question to its user gets more time than the setting.
        """
        with contextlib.suppress(TimeoutError):
            if client is not None and held.state is ApprovalState.PENDING:
                async with asyncio.timeout(MAX_WAIT_SECONDS):
                    await self._ask_client(actor, held, client)
            async with asyncio.timeout(self._wait_seconds):
                await self.decisions.final(actor.tenant, held.approval_id)
        return await self._find(actor, held)

    async def _ask_client(self, actor: Actor, held: HeldCall, client: ClientApprover) -> None:
        """Ask the client's user while humans of Weftline may decide as well."""
        asking = asyncio.create_task(client.ask(held), name="weftline-approval-client")
        deciding = asyncio.create_task(
            self.decisions.final(actor.tenant, held.approval_id), name="weftline-approval-wait"
        )
        try:
            await asyncio.wait({asking, deciding}, return_when=asyncio.FIRST_COMPLETED)
            answer = asking.result() if asking.done() else "unanswered"
        finally:
            for task in (asking, deciding):
                task.cancel()
            await asyncio.gather(asking, deciding, return_exceptions=True)
        if answer == "deferred":
            raise TimeoutError
        if answer != "unanswered":
            await self._decide_for_client(actor, held, answer)

    async def _decide_for_client(self, actor: Actor, held: HeldCall, decision: Decision) -> None:
        by = f"{_CLIENT}{actor.participant}"
        decided = await self._write(actor, lambda approvals: approvals.decide_by_client(held, decision, by))
        if decided is not None and decision == "approved" and self.performer is not None:
            # Not cancelled with the caller: the decision stands.
            await asyncio.shield(self.performer.perform(actor.tenant, decided))

    async def _find(self, actor: Actor, held: HeldCall) -> HeldCall:
        async def find(transaction: Transaction) -> HeldCall | None:
            return await ApprovalStore(transaction).find(held.approval_id)

        # Fails if the caller has lost its access meanwhile.
        found = await self._database.read(caller_scope(actor), find)
        if found is None:
            raise _expired(held)
        return found

    async def _given(self, operation: Operation, actor: Actor, held: HeldCall) -> Any:  # noqa: ANN401 - a response
        match held.state:
            case ApprovalState.PERFORMED:
                return await self._collected(operation, actor, held)
            case ApprovalState.REJECTED:
                why = f": {held.decision_reason}" if held.decision_reason else "."
                raise ApprovalRejected(f"{held.decided_by} rejected this call{why}", approval_id=held.approval_id)
            case ApprovalState.EXPIRED:
                raise _expired(held)
            case _:
                raise pending_error(held)

    async def _collected(self, operation: Operation, actor: Actor, held: HeldCall) -> Any:  # noqa: ANN401 - a response
        now = to_micros(self._clock.now())
        if held.collected_at is None:
            due_at = structs.replace(held, collected_at=now).answer_until if held.has_answer else held.delete_at
            await self._database.write(
                caller_scope(actor), lambda tx: ApprovalStore(tx).collect(held.approval_id, now, due_at)
            )
        outcome = held.outcome
        if outcome is None or outcome.error is not None:
            raise InternalError if outcome is None or outcome.error is None else rebuild_error(outcome.error)
        return msgspec.convert(outcome.answer, operation.response)

    async def _write(self, actor: Actor, work: Callable[[Approvals], Any]) -> Any:  # noqa: ANN401 - what the work returns
        scope = caller_scope(actor)
        return await logged_write(self._database, scope, lambda tx: work(self._container.build(Approvals, actor, tx)))


class Decisions:
    """Tells waiting callers when their held calls are decided and performed, in this process or any other.

    One task per tenant reads the states of all its waiting calls after a wake-up.
    """

    def __init__(self, database: Database, feed: LiveFeed) -> None:
        self._database = database
        self._feed = feed
        self._waiting: dict[str, dict[asyncio.Future[None], str]] = {}
        self._woken: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_open = True
        feed.listeners.append(self._wake)

    @property
    def count(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def final(self, tenant: str, approval_id: str) -> None:
        """Wait until a held call is final or deleted; raises TimeoutError if too many calls wait already."""
        of_tenant = len(self._waiting.get(tenant, ()))
        if not self._is_open or of_tenant >= MAX_WAITING_OF_TENANT or self.count >= MAX_WAITING:
            raise TimeoutError
        waiting = self._waiting.setdefault(tenant, {})
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting[decided] = approval_id
        self._watch(tenant)
        try:
            await decided
        finally:
            waiting.pop(decided, None)

    def end_all(self) -> None:
        """Let no call wait any more, because the process shuts down: they are answered as pending."""
        self._is_open = False
        for waiting in self._waiting.values():
            for decided in waiting:
                if not decided.done():
                    decided.set_exception(TimeoutError())

    async def close(self) -> None:
        self.end_all()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _watch(self, tenant: str) -> None:
        self._feed.start()
        self._woken.setdefault(tenant, asyncio.Event()).set()
        if tenant not in self._tasks:
            self._tasks[tenant] = asyncio.create_task(self._read_repeatedly(tenant), name="weftline-approvals")

    def _wake(self, tenants: set[str]) -> None:
        for tenant, woken in self._woken.items():
            if not tenants or tenant in tenants:
                woken.set()

    async def _read_repeatedly(self, tenant: str) -> None:
        try:
            while self._waiting.get(tenant):
                self._woken[tenant].clear()
                # An unreachable database must not end the wait.
                with contextlib.suppress(WeftlineError):
                    await self._read(tenant)
                await asyncio.sleep(_PAUSE_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await self._woken[tenant].wait()
        finally:
            for waited in (self._tasks, self._woken, self._waiting):
                waited.pop(tenant, None)

    async def _read(self, tenant: str) -> None:
        waiting = dict(self._waiting[tenant])
        ids = sorted(set(waiting.values()))
        states = await self._database.read(Scope(tenant), lambda tx: ApprovalStore(tx).states(ids))
        for decided, approval_id in waiting.items():
            state = states.get(approval_id)
            if (state is None or state.is_final) and not decided.done():
                decided.set_result(None)


def pending_error(held: HeldCall) -> ApprovalPending:
    """Return what a caller is answered whose call waits for a decision."""
    message = f"{held.reason.text} The call waits for approval as {held.approval_id}."
    return ApprovalPending(message, approval_id=held.approval_id, check=held.reason.check)


def stored_error(error: WeftlineError) -> HeldError:
    """Return an error as it is stored."""
    kind = type(error)
    return HeldError(
        kind=f"{kind.__module__}:{kind.__qualname__}",
        code=error.code,
        message=error.message,
        hint=error.hint_template,
        # A value that is no JSON must not keep the call unanswered.
        context=msgspec.to_builtins(error.context, enc_hook=str),
        related=error.related,
    )


def rebuild_error(stored: HeldError) -> WeftlineError:
    """Return a stored error as an instance of its class; of a class that is gone, as an InternalError with its code."""
    module, _, name = stored.kind.partition(":")
    try:
        kind = getattr(import_module(module), name, None)
    except ImportError:
        kind = None
    if not (isinstance(kind, type) and issubclass(kind, WeftlineError)):
        kind = InternalError
    error = kind.__new__(kind)
    WeftlineError.__init__(error, stored.message, hint=stored.hint, related=stored.related, **stored.context)
    vars(error)["code"] = stored.code
    return error


def _expired(held: HeldCall) -> ApprovalExpired:
    return ApprovalExpired(approval_id=held.approval_id)


def _not_holdable(call: GuardedCall, reason: HoldReason) -> CallNotHoldable:
    what = "A decision" if call.operation.group == _APPROVAL else "A call that streams content"
    return CallNotHoldable(f"{reason.text} {what} cannot wait for an approval.", check=reason.check)
