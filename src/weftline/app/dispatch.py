"""The path of every call, from every interface.

identify → rate limit → read → authorise → parse → guard → run → guard → meter

One transaction runs a call: state, history, audit, event.

A call that a check holds is stored and performed when it is approved, on the same path from authorising on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace
from opentelemetry import trace

from weftline.access.authentication import identify_local
from weftline.access.model import parse_key
from weftline.access.operations import AuthenticateAgent
from weftline.access.sql import AccessStore
from weftline.access.steps import BoundToStep, StepNotFound, check_operation_in_step
from weftline.app.genai_telemetry import describe_span
from weftline.app.held_calls import ClientApprover, HeldCalls
from weftline.app.wiring import CallScope
from weftline.history.line_kinds import SESSION, line_kinds, name_in
from weftline.kernel.client_gone import ClientGone, stoppable, until_client_leaves
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.errors import (
    AuthenticationError,
    Forbidden,
    InternalError,
    InvalidApiKey,
    PermissionDenied,
    RateLimited,
    ServerBusy,
    WeftlineError,
    is_audited,
)
from weftline.kernel.fair_queue import FairSlots
from weftline.kernel.guards import GuardedCall
from weftline.kernel.identity import PrincipalKind
from weftline.kernel.operation import Audience, Effect, PreparationOutdated, RateClass, SessionUse
from weftline.kernel.thread_pools import CALLER
from weftline.safety.approvals.model import CallNotHoldable, CallResult
from weftline.safety.approvals.sql import ApprovalStore
from weftline.safety.trust.scanner import is_long
from weftline.sessions.model import ALL_SESSIONS, BoundToSession, check_not_terminated, session_elsewhere
from weftline.storage.sql.database import AccessChanged, Scope, caller_scope
from weftline.storage.sql.unit_of_work import begin_approved, log_changes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.context import Context

    from weftline.app.authentication import Authenticator, Credential
    from weftline.app.metrics import Metrics
    from weftline.app.rate_limits import RateLimits
    from weftline.app.refusals import Auditor, Refusals
    from weftline.app.wiring import Container
    from weftline.kernel.guards import EntryPoint, Guards
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation, Preparation, Registry
    from weftline.kernel.transaction import Transaction
    from weftline.safety.trust.scanner import ContentScanner, Verdicts
    from weftline.storage.sql.database import Database


# What a call may reach on a connection that is bound to one session, by the SessionUse of its operation.
#
# The other half is ``Session.admits``: for a bound caller only its session does, whatever names or lists it.

_SESSION = "session_id"
# Request fields that name a context in history.
LINE_FIELDS = ("context_id", "from_context_id", "other_context_id")


def works_in_session(operation: Operation) -> bool:
    """Return whether an operation works in the session of its session_id, which a bound connection fills in."""
    return operation.session is SessionUse.WORKS_IN and _SESSION in operation.request.__struct_fields__


def fill_in_session(operation: Operation, raw: Mapping[str, Any], session_id: str) -> Mapping[str, Any]:
    """Return a request in the session of the connection; ``board`` is the board of that session."""
    given = {name: _full_line_id(raw[name], session_id) for name in LINE_FIELDS if isinstance(raw.get(name), str)}
    if works_in_session(operation):
        given[_SESSION] = raw.get(_SESSION) or session_id
    return {**raw, **given} if given else raw


def check_in_session(operation: Operation, raw: Mapping[str, Any], actor: Actor) -> None:
    """Refuse a request that names another session than the one of the connection, as if that did not exist."""
    for named in _named_sessions(operation, raw):
        if named != actor.bound_session:
            raise session_elsewhere(str(named), actor)


def check_not_outside(operation: Operation, actor: Actor) -> None:
    """Refuse operations that create sessions or cover all of them."""
    if operation.session is SessionUse.OUTSIDE:
        raise BoundToSession(
            f"This connection works in the session '{actor.bound_session}' only; `{operation.name}` reaches beyond it.",
            session_id=actor.bound_session,
        )


def _named_sessions(operation: Operation, raw: Mapping[str, Any]) -> Iterator[object]:
    """Return the sessions that a request names itself; those of other ids are looked up by the operation."""
    named = raw.get(_SESSION)
    if named is not None and not (named == ALL_SESSIONS and operation.session is SessionUse.MAY_NAME):
        yield named
    for line in (raw.get(name) for name in LINE_FIELDS):
        of_line = name_in(line, SESSION) if isinstance(line, str) else None
        if of_line is not None:
            yield of_line


def _full_line_id(named: str, session_id: str) -> str:
    line, mark, branch = named.partition("@")
    kind = line_kinds().get(line)
    return f"{line}:{session_id}{mark}{branch}" if kind is not None and kind.of_session else named


_log = logging.getLogger("weftline.calls")
_tracer = trace.get_tracer("weftline")
_MAX_TRIES = 5
# How often a call is prepared whose preparation others outdate.
_PREPARATIONS = 4
_BUSY_SECONDS = 2
# Heavy calls with transactions of their own at the same time: parts of their work run on the event loop.
_HEAVY_CALLS = 8
_MAX_HEAVY_WAITING = 64
_MAX_HEAVY_WAIT_SECONDS = 30.0
# Actions of audit rows about callers that were not let in.
_AUTHENTICATE, _RATE_LIMIT = "authenticate", "rate_limit"
_EXCHANGE = "token.refresh"
# No request has these fields: the credential names the tenant.
_TENANT_FIELDS = ("tenant", "tenant_id")
_no_span = contextlib.nullcontext()


class KeyOwner(NamedTuple):
    """The principal whose API key a call without a credential proved."""

    tenant: str
    principal_id: str


class CallContext(msgspec.Struct, frozen=True):
    """Where a call comes from: its credential, its network peer and its correlation ids.

    ``sampled`` is the sampling flag of the trace it is part of. ``client`` asks the caller's user for an approval.
    ``session_id`` is the session that the connection is bound to.
    """

    credential: Credential | None
    peer: str = "local"
    correlation: Correlation = NO_CORRELATION
    sampled: bool = True
    client: ClientApprover | None = None
    session_id: str | None = None

    def __repr__(self) -> str:
        return f"CallContext(peer={self.peer!r})"  # keeps the credential out of logs and tracebacks


class Incoming(ABC):
    """A request that is still to be received: only once its caller is known and within its rate limits."""

    __slots__ = ()

    @abstractmethod
    async def read(self, caller: Actor) -> Mapping[str, Any]:
        """Receive and decode it; raises ClientGone."""


class Handler(Protocol):
    """Runs a call in place of its operation, for content that streams in or out."""

    async def run(self, call: GuardedCall) -> Any:  # noqa: ANN401 - a response of the operation
        """Return the answer. Called again if the caller's access rules changed meanwhile."""
        ...


class Dispatcher:
    """Performs operations for callers."""

    def __init__(
        self,
        *,
        database: Database,
        callers: Authenticator,
        rates: RateLimits,
        auditor: Auditor,
        refusals: Refusals,
        metrics: Metrics,
        container: Container,
        guards: Guards,
        scanner: ContentScanner,
        held_calls: HeldCalls,
    ) -> None:
        self._database = database
        self._callers = callers
        self._rates = rates
        self._auditor = auditor
        self._refusals = refusals
        self._metrics = metrics
        self._container = container
        self._guards = guards
        self._scanner = scanner
        self._held_calls = held_calls
        self._heavy_calls = FairSlots(
            _HEAVY_CALLS, max_wait_seconds=_MAX_HEAVY_WAIT_SECONDS, max_waiting=_MAX_HEAVY_WAITING
        )

    async def call(
        self,
        operation: Operation,
        raw: Mapping[str, Any] | Incoming,
        context: CallContext,
        *,
        strict: bool = True,
        entry: EntryPoint = "call",
        handler: Handler | None = None,
    ) -> Any:  # noqa: ANN401 - the operation's response
        """Perform an operation for the caller that the credential proves, and meter it."""
        started = time.perf_counter()
        outcome = "ok"
        caller: Actor | KeyOwner | None = None
        fields: Mapping[str, Any] = {}
        try:
            with _span(operation, context):
                if operation.audience is Audience.ANONYMOUS:
                    assert not isinstance(raw, Incoming)  # noqa: S101 - read before, within the limits of its address
                    fields = raw
                    answer, caller = await self._perform_anonymously(operation, raw, context, strict=strict)
                    return answer
                caller = actor = await self._identify_for(operation, context)
                await self._check_rate(operation, context, actor)
                if isinstance(raw, Incoming):
                    waited = time.perf_counter()
                    fields = await raw.read(actor)
                    # How long a client takes to send is its own matter.
                    started += time.perf_counter() - waited
                else:
                    fields = raw
                if actor.bound_session is not None:
                    fields = fill_in_session(operation, fields, actor.bound_session)
                answer = await self._perform(
                    operation, fields, context, actor, strict=strict, entry=entry, handler=handler
                )
                describe_span(operation.name, answer, self._metrics.model_label)
                return answer
        except (WeftlineError, ClientGone) as error:
            outcome = error.code
            raise
        except Exception as error:
            outcome = InternalError.code
            _log.exception("operation failed", extra={"fields": {"operation": operation.name}})
            raise InternalError from error
        finally:
            self._metrics.record(operation, outcome, time.perf_counter() - started, caller, named_session(fields))

    async def _check_rate(self, operation: Operation, context: CallContext, actor: Actor) -> None:
        try:
            await self._rates.check(operation.rate, actor.tenant, actor.principal_id)
        except RateLimited as error:
            await self.note_rate_limit(actor.tenant, context, error, actor)
            raise

    async def _perform(
        self,
        operation: Operation,
        raw: Mapping[str, Any],
        context: CallContext,
        actor: Actor,
        *,
        strict: bool,
        entry: EntryPoint,
        handler: Handler | None,
    ) -> Any:  # noqa: ANN401 - as above
        """Authorise, parse, guard, run, guard; again from authorising if access rules changed meanwhile."""
        CALLER.set((actor.tenant, actor.path))
        for _ in range(_MAX_TRIES):
            try:
                _check_allowed(operation, raw, actor)
                request = operation.parse(raw, strict=strict)
                acting = (
                    actor if context.correlation is NO_CORRELATION else replace(actor, correlation=context.correlation)
                )
                call = GuardedCall(operation, request, acting, entry)
                try:
                    return await self._run_guarded(call, handler)
                except WeftlineError as error:
                    if error.hold is None:
                        raise
                    # Answered once it was approved and performed.
                    return await self._held_calls.answer(call, error, context.client)
            except AccessChanged:
                self.forget(context)
                actor = await self._identify_for(operation, context)
            except WeftlineError as error:
                if any(raw.get(name, actor.tenant) != actor.tenant for name in _TENANT_FIELDS):
                    error.violation = "cross_tenant"
                await self.audit_denial(operation, actor, error, raw)
                raise
        raise AuthenticationError("Your access is being changed right now; try again.")

    async def _run_guarded(self, call: GuardedCall, handler: Handler | None = None) -> Any:  # noqa: ANN401 - as above
        guarded = self._guards.apply(call)
        if guarded:
            call = await self._guards.before(call)
        answer = await (handler.run(call) if handler else self._run(call, _scope_of(call)))
        return await self._guard_answer(call, answer) if guarded else answer

    async def _guard_answer(self, call: GuardedCall, answer: Any) -> Any:  # noqa: ANN401 - as above
        try:
            return await self._guards.after(call, answer)
        except WeftlineError as error:
            if error.hold is None or call.operation.effect is Effect.READ:
                raise
            # Holding it now would perform it twice.
            raise CallNotHoldable(f"{error.message} The call has been performed already.") from error

    async def perform_approved(self, operation: Operation, raw: Mapping[str, Any], actor: Actor) -> Any:  # noqa: ANN401
        """Perform an approved call as its caller, with the rights it has now. It was rated when it was made."""
        CALLER.set((actor.tenant, actor.path))
        started = time.perf_counter()
        outcome = "ok"
        try:
            _check_allowed(operation, raw, actor)
            return await self._run_guarded(GuardedCall(operation, operation.parse(raw), actor))
        except WeftlineError as error:
            outcome = error.code
            if error.hold is None:
                await self.audit_denial(operation, actor, error, raw)
            raise
        finally:
            self._metrics.record(operation, outcome, time.perf_counter() - started, actor, named_session(raw))

    async def guard_answer(self, operation: Operation, raw: Mapping[str, Any], actor: Actor, answer: Any) -> Any:  # noqa: ANN401
        """Let guards see the answer of an approved call whose process ended before they could."""
        return await self._guard_answer(GuardedCall(operation, operation.parse(raw), actor), answer)

    async def _perform_anonymously(
        self, operation: Operation, raw: Mapping[str, Any], context: CallContext, *, strict: bool
    ) -> tuple[Any, KeyOwner]:
        """Parse, identify, rate limit, guard, run, guard: for a caller whose credential is the API key in the request.

        The key is proved by a read before anything is counted for it: a guess counts for its address alone.
        """
        given = raw if raw.get("api_key") is not None else {**raw, "api_key": ""}
        request = operation.parse(given, strict=strict)
        assert isinstance(request, AuthenticateAgent)  # noqa: S101 - the one operation for callers without a credential
        key = parse_key(request.api_key)
        if key is None:
            malformed = InvalidApiKey()
            await self.note_refusal(None, context, operation.name, malformed, target=request.agent_id)
            raise malformed
        try:
            await self._callers.identify(request.api_key, context.peer)
            await self._rates.check(operation.rate, key.tenant, key.key_id)
            call = await self._guards.before(GuardedCall(operation, request, None))
            answer = await self._guards.after(call, await self._run(call, Scope(key.tenant)))
            return answer, KeyOwner(key.tenant, request.agent_id)
        except RateLimited as error:
            await self.note_rate_limit(key.tenant, context, error)
            raise
        except Forbidden as error:
            await self.note_refusal(
                key.tenant, context, operation.name, error, target=request.agent_id, key_id=key.key_id
            )
            raise

    async def _identify_for(self, operation: Operation, context: CallContext) -> Actor:
        return await self.identify(context, exchanges=operation.name == _EXCHANGE)

    async def identify(self, context: CallContext, *, fresh: bool = False, exchanges: bool = False) -> Actor:
        """Return the caller; ``fresh`` checks for changed access rules, for those who open no transaction that does.

        ``exchanges`` also accepts a token for a single use. A missing credential and one that is not accepted are
        audited, and limited by address.
        """
        if context.credential is None:
            await self.admit_without_credential(context)
            error = AuthenticationError()
            with _refusing(error):
                await self._refusals.note(None, context.peer, _AUTHENTICATE, error)
            raise error
        identify = self._callers.identify_now if fresh else self._callers.identify
        try:
            actor = await identify(context.credential, context.peer)
            _check_use(actor, exchanges=exchanges)
            return actor if context.session_id is None else actor.bound_to(context.session_id)
        except AuthenticationError as error:
            tenant = None
            with contextlib.suppress(AuthenticationError):
                tenant = self._callers.claimed_tenant(context.credential)
            with _refusing(error):
                await self.note_refusal(tenant, context, _AUTHENTICATE, error)
            raise
        except (BoundToStep, StepNotFound) as error:
            with _refusing(error):
                await self.note_refusal(self._callers.claimed_tenant(context.credential), context, _AUTHENTICATE, error)
            raise

    async def admit_without_credential(self, context: CallContext) -> None:
        """Limit messages without a credential by address; raises RateLimited."""
        try:
            await self._rates.check_address(RateClass.ANONYMOUS, context.peer)
        except RateLimited as error:
            await self.note_rate_limit(None, context, error)
            raise

    async def admit(self, context: CallContext) -> Actor:
        """Identify the caller of a message and limit it, before anything of the message is read."""
        actor = await self.identify(context, fresh=True)
        try:
            self._rates.check_here(RateClass.MCP, actor.tenant, actor.principal_id)
        except RateLimited as error:
            await self.note_rate_limit(actor.tenant, context, error, actor)
            raise
        return actor

    async def admit_wrong_host(self, context: CallContext) -> None:
        """Limit requests for other hosts by address, apart: a web page must not use up the limit of who opened it."""
        await self._rates.check_address(RateClass.ANONYMOUS, context.peer, "host")

    async def note_refusal(
        self,
        tenant: str | None,
        context: CallContext,
        action: str,
        error: WeftlineError,
        *,
        target: str = "",
        key_id: str | None = None,
    ) -> None:
        """Audit a refused credential; raises RateLimited after too many from one address."""
        try:
            # Guesses are limited by address, so that no agent can be locked out by its neighbours.
            await self._rates.check_address(RateClass.AUTHENTICATION, context.peer)
        except RateLimited as limited:
            await self._refusals.note(tenant, context.peer, _RATE_LIMIT, limited, is_proved=False)
            raise
        await self._refusals.note(tenant, context.peer, action, error, target=target, key_id=key_id)

    async def note_rate_limit(
        self, tenant: str | None, context: CallContext, error: RateLimited, actor: Actor | None = None
    ) -> None:
        """Audit a refusal by rate limit."""
        await self._refusals.note(tenant, context.peer, _RATE_LIMIT, error, actor=actor)

    def forget(self, context: CallContext) -> None:
        """Look the caller up again before its next call."""
        if context.credential is not None:
            self._callers.forget(context.credential)

    async def audit_denial(
        self, operation: Operation, actor: Actor, error: WeftlineError, raw: Mapping[str, Any]
    ) -> None:
        if is_audited(error):
            session_id = named_session(raw)
            await self._auditor.denied(actor.tenant, actor, operation.name, error, raw, session_id=session_id)

    async def _run(self, call: GuardedCall, scope: Scope) -> Any:  # noqa: ANN401 - as above
        operation, request = call.operation, call.request
        verdicts = await self._verdicts(call) if operation.content is not None else {}
        if operation.effect is Effect.WRITE:
            if operation.prepare is None:
                return await self._write(call, scope, verdicts, {})
            return await self._write_prepared(call, scope, verdicts)
        plan = await self._prepare(call)
        if operation.effect is not Effect.READ:
            arguments = self._container.arguments(operation.needs, CallScope(call.actor, None))
            if not operation.heavy(request):
                return await operation.run(request, *arguments, **plan)
            async with self._heavy_call(scope):
                return await operation.run(request, *arguments, **plan)
        if operation.audited and (actor := call.actor) is not None:
            # Committed before anything is shown.
            await self._database.write(scope, lambda tx: self._auditor.trail(tx, actor).record(operation, request))
        with stoppable():
            return await self._database.read(
                scope,
                lambda tx: operation.run(
                    request, *self._container.arguments(operation.needs, CallScope(call.actor, tx)), **plan
                ),
                heavy=operation.heavy(request),
            )

    @contextlib.asynccontextmanager
    async def _heavy_call(self, scope: Scope) -> AsyncIterator[None]:
        """Hold a slot for a heavy call with transactions of its own; until it has one, its client may leave."""
        flow, slots = (scope.tenant or "", scope.principal), self._heavy_calls
        with stoppable(), until_client_leaves():
            await slots.take(*flow)
        started = time.monotonic()
        try:
            yield
        finally:
            slots.give_back(*flow, time.monotonic() - started)

    async def _verdicts(self, call: GuardedCall) -> Verdicts:
        """Scan the texts that the request stores: on SQLite nothing in a transaction may wait for a thread."""
        operation = call.operation
        if operation.content is None or call.actor is None:
            return {}
        texts = list(operation.content(call.request))
        if operation.limits is not None and is_long(texts):
            await self._run_before(operation.limits, call)
        return await self._scanner.prepare(call.actor, texts)

    async def _prepare(self, call: GuardedCall) -> dict[str, Any]:
        """Prepare a call; return the plan by the name of the parameter that gets it."""
        operation = call.operation
        if operation.prepare is None:
            return {}
        plan = await self._run_before(operation.prepare, call)
        return {} if operation.plan is None else {operation.plan: plan}

    async def _run_before(self, preparation: Preparation, call: GuardedCall) -> Any:  # noqa: ANN401 - a plan
        needs = self._container.arguments(preparation.needs, CallScope(_preparing(call.actor), None))
        return await preparation.run(call.request, *needs)

    async def _write_prepared(self, call: GuardedCall, scope: Scope, verdicts: Verdicts) -> Any:  # noqa: ANN401 - as above
        for _ in range(_PREPARATIONS):
            with contextlib.suppress(PreparationOutdated):
                return await self._write(call, scope, verdicts, await self._prepare(call))
        raise ServerBusy("Others change this faster than the call can be prepared.", retry_after_seconds=_BUSY_SECONDS)

    async def _write(self, call: GuardedCall, scope: Scope, verdicts: Verdicts, plan: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as above
        operation, request = call.operation, call.request

        async def work(transaction: Transaction) -> tuple[Any, Transaction]:
            if call.actor is not None and call.actor.approval is not None:
                await begin_approved(transaction, call.actor)
            arguments = self._container.arguments(operation.needs, CallScope(call.actor, transaction, verdicts))
            answer = await operation.run(request, *arguments, **plan)
            if operation.audited:
                # A caller without a credential has by now proved to be the agent that the token was issued to.
                actor = call.actor or await identify_local(answer.agent_id, AccessStore(transaction))
                await self._auditor.trail(transaction, actor).record(operation, request, answer)
            if call.approval is not None:
                await ApprovalStore(transaction).keep(call.approval, CallResult(msgspec.to_builtins(answer)))
            return answer, transaction

        answer, done = await self._database.write(scope, work)
        if done.access_changed:
            # Every transaction checks the epoch anyway; this also covers what runs without one, such as connecting.
            self._callers.forget_tenant(done.tenant)
        log_changes(scope, done.published)
        return answer


@contextlib.contextmanager
def _refusing(error: WeftlineError) -> Iterator[None]:
    """Refuse a caller also if there is no time to write that down: the audit row may be late, the refusal not."""
    try:
        yield
    except asyncio.CancelledError:
        raise error from None


def _check_use(actor: Actor, *, exchanges: bool) -> None:
    """Refuse calls with a token that can only be exchanged for another one."""
    if actor.single_use and not exchanges:
        raise AuthenticationError(
            "This token can only be exchanged for another one.",
            hint="Exchange it with `token.refresh`, or open its link in a browser.",
        )


def named_session(raw: Mapping[str, Any]) -> str | None:
    """Return the session that a request names, if it names one."""
    session_id = raw.get("session_id")
    return session_id if isinstance(session_id, str) and session_id != ALL_SESSIONS else None


def _check_allowed(operation: Operation, raw: Mapping[str, Any], actor: Actor) -> None:
    if actor.bound_session is not None:
        check_in_session(operation, raw, actor)
    if actor.terminated_sessions:
        check_not_terminated(named_session(raw) or "", actor)
    operation.forbids(raw, actor)
    authorise(operation, actor)


def _preparing(actor: Actor | None) -> Actor | None:
    """Return the actor for the preparation of its call, whose transactions are not those of the call."""
    if actor is None or actor.approval is None:
        return actor
    return replace(actor, approval=replace(actor.approval, preparing=True))


def _scope_of(call: GuardedCall) -> Scope:
    actor = call.actor
    assert actor is not None  # noqa: S101 - callers without a credential have a scope of their own
    return caller_scope(actor)


def _span(operation: Operation, context: CallContext) -> AbstractContextManager[object]:
    # Without a tracer installed, even an empty span costs as much as a small query, and so does the public API that
    # tells whether there is one.
    if trace._TRACER_PROVIDER is None:  # noqa: SLF001
        return _no_span
    # The text of an error may quote values, which do not belong in a trace.
    return _tracer.start_as_current_span(
        operation.name, _parent_of(context), record_exception=False, set_status_on_exception=False
    )


def _parent_of(context: CallContext) -> Context | None:
    """Return the trace context that a call came with, unless this process is in that trace already."""
    correlation, current = context.correlation, trace.get_current_span().get_span_context()
    if correlation.trace_id is None or correlation.span_id is None or int(correlation.trace_id, 16) == current.trace_id:
        return None
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if context.sampled else trace.TraceFlags.DEFAULT)
    given = trace.SpanContext(
        int(correlation.trace_id, 16), int(correlation.span_id, 16), is_remote=True, trace_flags=flags
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(given))


def authorise(operation: Operation, actor: Actor) -> None:
    """Raise PermissionDenied if the operation would refuse every request of this actor.

    Interfaces list what passes; this is also checked at every call.
    """
    if actor.step is not None:
        check_operation_in_step(operation, actor)
    if actor.bound_session is not None:
        check_not_outside(operation, actor)
    if operation.permission is not None and operation.permission not in actor.permissions:
        raise PermissionDenied(
            f"`{operation.name}` needs the permission '{operation.permission}'.",
            required_permission=operation.permission,
            your_permissions=sorted(actor.permissions),
        )
    if operation.audience is Audience.NOT_SUBAGENTS and actor.is_subagent:
        raise PermissionDenied(
            f"`{operation.name}` is for orchestrators and humans, not for sub-agents.",
            hint="Leave this to the orchestrator that started you, and continue in the session you were given.",
            related=("get_usage_guidance",),
        )
    if operation.audience is Audience.HUMANS and actor.kind is not PrincipalKind.HUMAN:
        raise PermissionDenied(
            f"`{operation.name}` is for humans, not for agents.",
            hint="Ask a human of your tenant to do it.",
            related=("get_usage_guidance",),
        )
    operation.requires(actor)


class RegisteredOperations:
    """Lists the operations of a caller."""

    def __init__(self, registry: Registry, rates: Mapping[RateClass, str], database: Database) -> None:
        self._registry = registry
        self._rates = rates
        self._database = database

    async def to(self, actor: Actor) -> list[Operation]:
        await check_access(self._database, actor)
        return [operation for operation in self._registry if may_use(operation, actor)]

    def limit(self, rate: RateClass) -> str:
        return self._rates[rate]


async def check_access(database: Database, actor: Actor) -> None:
    """Raise AccessChanged if the tenant's access rules have changed since the actor was identified."""

    async def read_nothing(_: Transaction) -> None:
        """Read nothing: opening the transaction is the check."""

    await database.read(caller_scope(actor), read_nothing)


def may_use(operation: Operation, actor: Actor) -> bool:
    # A caller with a credential needs no token, and an API key does not belong in a model's context.
    if operation.audience is Audience.ANONYMOUS or (operation.name == "token.refresh" and actor.token_id is None):
        return False
    try:
        authorise(operation, actor)
    except PermissionDenied:
        return False
    return True
