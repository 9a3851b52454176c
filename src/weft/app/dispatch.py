"""The one path of every call, whichever face it came by.

authenticate → tenant → rate limit → authorise → validate → guard → transaction (state, history, audit, event) → meter
"""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs
from opentelemetry import trace

from weft.app.injection import CallScope
from weft.capabilities.access.authentication import identify_local
from weft.capabilities.access.model import parse_key
from weft.capabilities.access.operations import AuthenticateAgent
from weft.capabilities.sessions.model import ALL_SESSIONS
from weft.kernel.correlation import UNRELATED, Correlation
from weft.kernel.errors import AuthenticationError, InternalError, InvalidApiKey, PermissionDenied, WeftError
from weft.kernel.operation import Audience, Effect, RateClass
from weft.storage.sql.access import SqlAccessStore
from weft.storage.sql.database import AccessChanged, Scope
from weft.storage.sql.unit_of_work import log_changes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from opentelemetry.context import Context

    from weft.app.audit_writer import Auditor
    from weft.app.authentication import Authenticator, Credential
    from weft.app.injection import Container
    from weft.app.metrics import Metrics
    from weft.app.rate_limits import RateLimits
    from weft.kernel.identity import Actor
    from weft.kernel.operation import Operation, Request, Response
    from weft.storage.sql.database import Database, Transaction

    Guard = Callable[[Actor, Operation, Request], None]
    Work = Callable[[Actor, Any], Awaitable[Any]]

T = TypeVar("T")

_log = logging.getLogger("weft.calls")
_tracer = trace.get_tracer("weft")
_TRIES = 5
_no_span = contextlib.nullcontext()


class CallContext(msgspec.Struct, frozen=True):
    """How a call came in: with which credential, from where if it came over a network, and as a part of what.

    ``sampled`` is whether the trace it is part of is kept where it began.
    """

    credential: Credential | None
    peer: str = "local"
    correlation: Correlation = UNRELATED
    sampled: bool = True

    def __repr__(self) -> str:
        return f"Arrival(peer={self.peer!r})"  # a credential has no place in a log or a traceback


class Dispatcher:
    """Performs operations. Nothing else opens a transaction on a caller's behalf."""

    def __init__(
        self,
        *,
        database: Database,
        callers: Authenticator,
        rates: RateLimits,
        auditor: Auditor,
        metrics: Metrics,
        container: Container,
        guards: Sequence[Guard],
    ) -> None:
        self._database = database
        self._callers = callers
        self._rates = rates
        self._auditor = auditor
        self._metrics = metrics
        self._container = container
        self._arguments: dict[tuple[type, ...], Callable[[CallScope], list[Any]]] = {}
        self._guards = guards

    async def call(
        self,
        operation: Operation,
        raw: Mapping[str, Any],
        arrival: CallContext,
        *,
        strict: bool,
        work: Work | None = None,
    ) -> Any:  # noqa: ANN401 - the operation's response, or what the work gives
        """Perform an operation for whoever the credential proves the caller to be; by other ``work`` if it is given."""
        started = time.perf_counter()
        outcome, actor = "ok", None
        try:
            with _span(operation, arrival):
                if operation.audience is Audience.ANONYMOUS:
                    return await self._perform_anonymously(operation, raw, arrival, strict=strict)
                actor = await self.identify(arrival)
                return await self._perform(operation, raw, arrival, actor, strict=strict, work=work)
        except WeftError as error:
            outcome = error.code
            raise
        except Exception as error:
            outcome = InternalError.code
            _log.exception("operation failed", extra={"fields": {"operation": operation.name}})
            raise InternalError from error
        finally:
            seconds = time.perf_counter() - started
            session_id = raw.get("session_id")
            named = session_id if isinstance(session_id, str) and session_id != ALL_SESSIONS else None
            self._metrics.record(operation, outcome, seconds, actor, named)

    async def identify(self, arrival: CallContext, *, now: bool = False) -> Actor:
        """Return who is calling; ``now`` if there will be no transaction to find out that this has changed.

        A credential that proves nobody is put on record, and may be tried only so often.
        """
        if arrival.credential is None:
            raise AuthenticationError
        identify = self._callers.identify_now if now else self._callers.identify
        try:
            return await identify(arrival.credential)
        except AuthenticationError as error:
            await self._rates.check(RateClass.AUTHENTICATION, arrival.peer)
            with contextlib.suppress(AuthenticationError):
                tenant = self._callers.claimed_tenant(arrival.credential)
                await self._auditor.denied(tenant, None, "authenticate", error)
            raise

    def forget(self, arrival: CallContext) -> None:
        """Look the caller up again before its next call."""
        if arrival.credential is not None:
            self._callers.forget(arrival.credential)

    async def permitted(
        self,
        operation: Operation,
        actor: Actor,
        ask: Callable[[], Request],
        work: Callable[[Request], Awaitable[T]],
    ) -> T:
        """Do the work if the caller may have it done; if not, put the refusal on record."""
        try:
            authorise(operation, actor)
            request = ask()
            for guard in self._guards:
                guard(actor, operation, request)
            return await work(request)
        except WeftError as error:
            if error.denial:
                await self._auditor.denied(actor.tenant, actor, operation.name, error)
            raise

    async def _perform(
        self,
        operation: Operation,
        raw: Mapping[str, Any],
        arrival: CallContext,
        actor: Actor,
        *,
        strict: bool,
        work: Work | None,
    ) -> Any:  # noqa: ANN401 - as above
        await self._rates.check(operation.rate, actor.tenant, actor.principal_id)
        for _ in range(_TRIES):
            acting = actor if arrival.correlation is UNRELATED else structs.replace(actor, during=arrival.correlation)
            scope = Scope(actor.tenant, actor.epoch)
            run = partial(work, acting) if work else partial(self._run, operation, acting, scope)
            try:
                return await self.permitted(operation, actor, partial(operation.parse, raw, strict=strict), run)
            except AccessChanged:
                self.forget(arrival)
                actor = await self.identify(arrival)
        raise AuthenticationError("Your access is being changed right now; try again.")

    async def _perform_anonymously(
        self, operation: Operation, raw: Mapping[str, Any], arrival: CallContext, *, strict: bool
    ) -> Response:
        """Perform what needs no credential beside the API key in the request itself."""
        request = operation.parse({"api_key": "", **raw}, strict=strict)
        assert isinstance(request, AuthenticateAgent)  # noqa: S101 - the one operation for those without a credential
        key = parse_key(request.api_key)
        if key is None:
            await self._rates.check(operation.rate, arrival.peer)
            raise InvalidApiKey
        await self._rates.check(operation.rate, key.tenant, key.key_id)
        try:
            return await self._run(operation, None, Scope(key.tenant), request)
        except WeftError as error:
            if isinstance(error, AuthenticationError):
                # Whoever guesses is slowed down by address, so that no agent can be locked out by its neighbours.
                await self._rates.check(operation.rate, arrival.peer)
            if error.denial:
                await self._auditor.denied(
                    key.tenant, None, operation.name, error, target=request.agent_id, key_id=key.key_id
                )
            raise

    def _builder(self, needs: tuple[type, ...]) -> Callable[[CallScope], list[Any]]:
        builder = self._arguments.get(needs)
        if builder is None:
            builder = self._arguments[needs] = self._container.prepare(needs)
        return builder

    async def _run(self, operation: Operation, actor: Actor | None, scope: Scope, request: Request) -> Response:
        arguments = self._builder(operation.needs)
        if operation.prepare is not None:
            build = self._builder(operation.prepare.needs)
            await operation.prepare.run(request, *build(CallScope(actor, None)))
        if operation.effect in {Effect.OWN_TRANSACTIONS, Effect.WAIT}:
            response: Response = await operation.run(request, *arguments(CallScope(actor, None)))
            return response
        if operation.effect is Effect.READ:
            if operation.audited and actor is not None:
                # On record before anything is shown.
                await self._database.write(scope, lambda tx: self._auditor.trail(tx, actor).record(operation, request))
            return await self._database.read(
                scope,
                lambda tx: operation.run(request, *arguments(CallScope(actor, tx))),
                heavy=operation.heavy(request),
            )

        async def work(transaction: Transaction) -> tuple[Response, Transaction]:
            result = await operation.run(request, *arguments(CallScope(actor, transaction)))
            if operation.audited:
                # Who came without a credential has by now proved to be the agent that the token was issued to.
                who = actor or await identify_local(result.agent_id, SqlAccessStore(transaction))
                await self._auditor.trail(transaction, who).record(operation, request, result)
            return result, transaction

        response, done = await self._database.write(scope, work)
        if done.access_changed:
            # Every transaction checks the epoch anyway; this also stops what comes before one, such as connecting.
            self._callers.forget_tenant(done.tenant)
        log_changes(scope, done.published)
        return response


def _span(operation: Operation, arrival: CallContext) -> AbstractContextManager[object]:
    # Without a tracer installed, even an empty span would cost as much as a small query, and so would the public
    # way to ask whether there is one.
    if trace._TRACER_PROVIDER is None:  # noqa: SLF001
        return _no_span
    # An error's text may quote what was sent, and values have no place in a trace.
    return _tracer.start_as_current_span(
        operation.name, _trace_of(arrival), record_exception=False, set_status_on_exception=False
    )


def _trace_of(arrival: CallContext) -> Context | None:
    """Return the trace that a call came with, unless this process is in it already."""
    during, current = arrival.correlation, trace.get_current_span().get_span_context()
    if during.trace_id is None or during.span_id is None or int(during.trace_id, 16) == current.trace_id:
        return None
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if arrival.sampled else trace.TraceFlags.DEFAULT)
    given = trace.SpanContext(int(during.trace_id, 16), int(during.span_id, 16), is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(given))


def authorise(operation: Operation, actor: Actor) -> None:
    """Decide for every face. Hiding an operation is not forbidding it; this is."""
    if operation.permission is not None and operation.permission not in actor.permissions:
        raise PermissionDenied(
            f"'{operation.tool}' needs the permission '{operation.permission}'.",
            required_permission=operation.permission,
            your_permissions=sorted(actor.permissions),
        )
    if operation.audience is Audience.NOT_SUBAGENTS and actor.is_subagent:
        raise PermissionDenied(
            f"'{operation.tool}' is for orchestrators and humans, not for sub-agents.",
            hint="Leave this to the orchestrator that started you; go on with the session you were given.",
            related=("get_usage_guidance",),
        )
