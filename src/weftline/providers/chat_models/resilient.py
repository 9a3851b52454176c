"""A chat model that bounds what a failing endpoint costs: time, retries, concurrency and repeated failures."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.errors import ServerBusy
from weftline.kernel.fair_queue import FairSlots
from weftline.models.language_models.chat_model import ChatModelError
from weftline.providers.chat_models.circuit_breaker import CircuitBreaker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weftline.models.language_models.chat_model import ChatAnswer, ChatMeter, ChatRequest
    from weftline.providers.chat_models.endpoint import ChatEndpoint

_log = logging.getLogger("weftline.chat_models")
_MAX_ATTEMPTS = 3
_MIN_BACKOFF_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 30.0
# Less time is not worth an attempt.
_MIN_ATTEMPT_SECONDS = 0.05
_RETRIED = frozenset({"timeout", "unavailable", "rate_limited", "malformed"})
# What says that the endpoint does not work, in contrast to one request or answer.
_ENDPOINT_FAILURES = frozenset({"timeout", "unavailable", "rate_limited"})
_OK = "ok"


class CallLimits(NamedTuple):
    """Limits of an endpoint: seconds for one attempt, and calls at the same time."""

    attempt_seconds: float
    concurrency: int


class RetryBudget:
    """Limits retries of all calls together: successes earn them, so that a failing endpoint is not called more."""

    _MAX = 10.0
    _EARNED = 0.2

    def __init__(self) -> None:
        self._left = self._MAX

    def spend(self) -> bool:
        """Take one retry; False if none is left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def earn(self) -> None:
        self._left = min(self._MAX, self._left + self._EARNED)


class ResilientChatModel:
    """Calls an endpoint with retries in a budget, a circuit breaker and fair slots, and meters every call."""

    def __init__(
        self,
        endpoint: ChatEndpoint,
        limits: CallLimits,
        meter: ChatMeter,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._meter = meter
        self._now = now
        self._pause = pause
        self._slots = FairSlots(limits.concurrency)
        self._breaker = CircuitBreaker(now)
        self._retries = RetryBudget()

    def __repr__(self) -> str:
        return f"<ResilientChatModel {self.name}>"

    @property
    def name(self) -> str:
        return self._endpoint.model

    async def close(self) -> None:
        await self._endpoint.close()

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        """Return the answer of the model; raises ChatModelError within the timeout of the request."""
        started = self._now()
        try:
            answer = await self._complete(request, started + request.timeout)
        except ChatModelError as error:
            self._meter.count_chat_call(request.caller, error.kind, self._now() - started, None)
            raise
        self._meter.count_chat_call(request.caller, _OK, self._now() - started, answer.usage)
        return answer

    async def _complete(self, request: ChatRequest, deadline: float) -> ChatAnswer:
        caller = request.caller
        try:
            async with asyncio.timeout(request.timeout), self._slots.hold(caller.tenant, caller.agent_id):
                return await self._with_retries(request, deadline)
        except (TimeoutError, ServerBusy):
            raise ChatModelError("No slot for the model was free in time.", kind="timeout") from None

    async def _with_retries(self, request: ChatRequest, deadline: float) -> ChatAnswer:
        attempt = 0
        while True:
            if not self._breaker.admits():
                # Not retried: the circuit stays open for longer than a call may take.
                raise ChatModelError("The endpoint failed repeatedly; it is not called for now.", kind="unavailable")
            try:
                return await self._attempt(request, deadline)
            except ChatModelError as error:
                attempt += 1
                wait = _wait_seconds(attempt, error.retry_after)
                too_late = self._now() + wait + _MIN_ATTEMPT_SECONDS > deadline
                if error.kind not in _RETRIED or attempt == _MAX_ATTEMPTS or too_late or not self._retries.spend():
                    raise
            await self._pause(wait)

    async def _attempt(self, request: ChatRequest, deadline: float) -> ChatAnswer:
        left = max(deadline - self._now(), _MIN_ATTEMPT_SECONDS)
        try:
            answer = await self._endpoint.attempt(request, min(self._limits.attempt_seconds, left))
        except ChatModelError as error:
            self._note_failure(error)
            raise
        except BaseException:
            self._breaker.abandoned()
            raise
        self._note_success()
        return answer

    def _note_failure(self, error: ChatModelError) -> None:
        if error.kind not in _ENDPOINT_FAILURES:
            # The endpoint answered, if not as desired.
            self._breaker.succeeded()
            return
        was_open = self._breaker.is_open
        self._breaker.failed(error.retry_after)
        if self._breaker.is_open and not was_open:
            _log.warning("chat model is not called for now", extra={"fields": {"model": self.name, "kind": error.kind}})

    def _note_success(self) -> None:
        if self._breaker.is_open:
            _log.info("chat model works again", extra={"fields": {"model": self.name}})
        self._breaker.succeeded()
        self._retries.earn()


def _wait_seconds(attempt: int, retry_after: float | None) -> float:
    """Return the pause before the next attempt: what the endpoint asks for, or exponential backoff with jitter."""
    if retry_after is not None:
        return retry_after
    backoff: float = _MIN_BACKOFF_SECONDS * 2.0 ** (attempt - 1) * random.uniform(1, 1.5)  # noqa: S311 - no secret
    return min(_MAX_BACKOFF_SECONDS, backoff)
