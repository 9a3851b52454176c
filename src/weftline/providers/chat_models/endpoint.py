"""One attempt at a chat endpoint over HTTP.

Error bodies may quote texts or keys: they are read to classify the error, and only the status reaches errors and logs.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from email.utils import parsedate_to_datetime
from time import time as clock_time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import httpx2
import msgspec

from weftline.kernel.errors import InvalidInput, ServerBusy
from weftline.kernel.fair_queue import FairSlots
from weftline.models.language_models.answer_usage import normalise_usage
from weftline.models.language_models.chat_model import ChatAnswer, ChatModelError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from weftline.models.language_models.answer_usage import Usage
    from weftline.models.language_models.chat_model import ChatErrorKind, ChatMeter, ChatRequest


# What the wire forms of chat endpoints have in common: options of a request, and how errors are classified.

# Parts of the errors with which endpoints say that the input exceeds the context, in lower case.
_TOO_LONG = (
    "context length",
    "context_length",
    "context size",
    "context window",
    "context limit",
    "exceed_context",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "maximum input length",
)
_TOO_LARGE_STATUS = 413


class RequestOptions(NamedTuple):
    """Optional parts of a request. An endpoint that refuses one gets requests without it."""

    structured: bool = True
    temperature: bool = True
    # The newer name of the limit of output tokens; many servers know the older one only.
    completion_limit: bool = False

    def after_refusal(self, error_text: str) -> RequestOptions | None:
        """Return the options to try after a request was refused; None if it cannot be due to any of them."""
        lowered = error_text.lower()
        if self.temperature and "temperature" in lowered:
            return self._replace(temperature=False)
        if not self.completion_limit and "max_completion_tokens" in lowered:
            return self._replace(completion_limit=True)
        if self.completion_limit and "max_completion_tokens" in lowered:
            return self._replace(completion_limit=False)
        return self._replace(structured=False) if self.structured else None


class ChatWire(Protocol):
    """One wire form: how a request is written, and how an answer is read."""

    path: str
    options: RequestOptions

    def headers(self, api_key: str) -> dict[str, str]: ...

    def body(self, model: str, request: ChatRequest, options: RequestOptions) -> dict[str, Any]: ...

    def answer(self, body: bytes) -> ChatAnswer:
        """Return the answer in a response; raises ChatModelError if it is malformed or a refusal."""
        ...


def is_too_long(status: int, error_text: str) -> bool:
    """Tell whether an error says that the input exceeds the context of the model."""
    lowered = error_text.lower()
    return status == _TOO_LARGE_STATUS or any(sign in lowered for sign in _TOO_LONG)


def malformed(what: str) -> ChatModelError:
    return ChatModelError(f"The endpoint of the model answers with {what}.", kind="malformed")


def refused() -> ChatModelError:
    return ChatModelError("The model refuses to answer.", kind="refused")


def usage_of(reported: Mapping[str, Any] | None) -> Usage | None:
    """Return the reported usage; None if there is none, or if its numbers cannot be."""
    try:
        return normalise_usage(reported) if reported else None
    except InvalidInput:
        return None


# Wire form of Anthropic's Messages API.

ANTHROPIC_URL = "https://api.anthropic.com/v1"
_VERSION = "2023-06-01"


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _Answer(msgspec.Struct):
    content: list[_Block]
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode


class Anthropic:
    """POST /messages."""

    path = "/messages"
    options = RequestOptions()

    def headers(self, api_key: str) -> dict[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": api_key} if api_key else {})}

    def body(self, model: str, request: ChatRequest, options: RequestOptions) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": request.max_output_tokens,
            "system": [_text(request.system)],
            "messages": [{"role": each.role, "content": [_text(each.content)]} for each in request.messages],
        }
        if options.temperature:
            body["temperature"] = 0
        if options.structured and request.json_schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.json_schema}}
        return body

    def answer(self, body: bytes) -> ChatAnswer:
        try:
            message = _decode_answer(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise malformed("no message") from None
        if message.stop_reason == "refusal":
            raise refused()
        text = "".join(block.text for block in message.content if block.type == "text")
        finish = "length" if message.stop_reason == "max_tokens" else "stop"
        return ChatAnswer(text, finish, usage_of(message.usage))  # type: ignore[arg-type]


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


# Wire form of OpenAI's chat completions, which vLLM, Ollama, llama.cpp and most gateways serve too.

OPENAI_URL = "https://api.openai.com/v1"
_SCHEMA_NAME = "answer"


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Completion).decode


class OpenAICompatible:
    """POST /chat/completions."""

    path = "/chat/completions"

    def __init__(self, *, is_openai: bool = False) -> None:
        self.options = RequestOptions(completion_limit=is_openai)

    def headers(self, api_key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def body(self, model: str, request: ChatRequest, options: RequestOptions) -> dict[str, Any]:
        messages = [{"role": "system", "content": request.system}]
        messages += [{"role": message.role, "content": message.content} for message in request.messages]
        limit = "max_completion_tokens" if options.completion_limit else "max_tokens"
        body: dict[str, Any] = {"model": model, "messages": messages, limit: request.max_output_tokens}
        if options.temperature:
            body["temperature"] = 0
        if options.structured and request.json_schema is not None:
            schema = {"name": _SCHEMA_NAME, "strict": True, "schema": request.json_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def answer(self, body: bytes) -> ChatAnswer:
        try:
            completion = _decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise malformed("no chat completion") from None
        if not completion.choices:
            raise malformed("a completion without a choice")
        choice = completion.choices[0]
        if choice.message.refusal or choice.finish_reason == "content_filter":
            raise refused()
        finish = "length" if choice.finish_reason == "length" else "stop"
        return ChatAnswer(choice.message.content or "", finish, usage_of(completion.usage))  # type: ignore[arg-type]


_MAX_BYTES = 8 * 2**20
_MAX_ERROR_BYTES = 65_536
_IDENTITY = "identity"
_CONNECT_SECONDS = 10.0
_TOO_MANY_REQUESTS = 429
_KEY_STATUSES = frozenset({401, 403})
# The request is invalid, possibly because of one of its options.
_INVALID_STATUSES = frozenset({400, 422})
_TEMPORARY_STATUSES = frozenset({408, 409, 425, 500, 502, 503, 504, 529})
_CHECK_KEY = "The operator must set WEFTLINE_CHAT_API_KEY to a key that the endpoint accepts."
_CHECK_ADDRESS = "The operator must check WEFTLINE_CHAT_URL and WEFTLINE_CHAT_MODEL."


class _Response(NamedTuple):
    status: int
    retry_after: float | None
    body: bytes

    @property
    def error_text(self) -> str:
        return self.body.decode("utf-8", "replace")


class ChatEndpoint:
    """Sends requests to one model of an endpoint, without the options that it refuses."""

    def __init__(self, wire: ChatWire, url: str, model: str, api_key: str = "") -> None:
        self.model = model
        self._wire = wire
        self._url = f"{url.rstrip('/')}{wire.path}"
        self._key = api_key
        self._options = wire.options
        self._http: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<ChatEndpoint {self.model}>"  # without the key

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def attempt(self, request: ChatRequest, seconds: float) -> ChatAnswer:
        """Send a request once; again only without an option that the endpoint refuses. Raises ChatModelError."""
        try:
            # Over everything: an endpoint that sends a byte now and then does not time out otherwise.
            async with asyncio.timeout(seconds):
                return await self._attempt(request)
        except (TimeoutError, httpx2.TimeoutException):
            raise ChatModelError("The endpoint of the model takes too long.", kind="timeout") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            reason = type(error).__name__
            raise ChatModelError(
                f"The endpoint of the model cannot be reached ({reason}).", kind="unavailable"
            ) from None

    async def _attempt(self, request: ChatRequest) -> ChatAnswer:
        options: RequestOptions | None = self._options
        tried: set[RequestOptions] = set()
        while options is not None and options not in tried:
            tried.add(options)
            sent = options
            response = await self._post(request, sent)
            options = _without_refused(response, sent, request)
        _check_status(response)
        # The endpoint accepts these options, so the next request starts with them.
        self._options = sent
        return self._wire.answer(response.body)

    async def _post(self, request: ChatRequest, options: RequestOptions) -> _Response:
        body = self._wire.body(self.model, request, options)
        async with self._client().stream("POST", self._url, json=body) as reply:
            content = await _read(reply)
            return _Response(reply.status_code, _retry_after(reply.headers.get("retry-after", "")), content)

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
            # No redirects: they could leak the key to another host.
            headers = {**self._wire.headers(self._key), "Accept-Encoding": _IDENTITY}
            self._http = httpx2.AsyncClient(headers=headers, timeout=timeout, follow_redirects=False)
        return self._http


def _without_refused(response: _Response, sent: RequestOptions, request: ChatRequest) -> RequestOptions | None:
    """Return the options to try next if the request may have been refused because of one; None if not."""
    if response.status not in _INVALID_STATUSES or is_too_long(response.status, response.error_text):
        return None
    changed = sent.after_refusal(response.error_text)
    # Without a schema, the request had no structured output that could be refused.
    return changed if changed is None or changed.structured or request.json_schema is not None else None


async def _read(reply: httpx2.Response) -> bytes:
    if reply.headers.get("content-encoding", _IDENTITY) != _IDENTITY:
        # A few kilobytes may become gigabytes before the limit is checked.
        raise malformed("compressed content, which was not asked for")
    limit = _MAX_BYTES if reply.is_success else _MAX_ERROR_BYTES
    content = bytearray()
    async for part in reply.aiter_bytes():
        content += part
        if len(content) > limit:
            if reply.is_success:
                raise malformed("more than was asked for")
            break
    return bytes(content)


def _check_status(response: _Response) -> None:
    status = response.status
    if 200 <= status < 300:  # noqa: PLR2004 - success
        return
    if is_too_long(status, response.error_text):
        raise ChatModelError("The input exceeds the context of the model.", kind="too_long")
    if status in _KEY_STATUSES:
        raise _error("does not accept the key", status, "rejected", hint=_CHECK_KEY)
    if status == _TOO_MANY_REQUESTS:
        raise _error("limits the rate", status, "rate_limited", retry_after=response.retry_after)
    if status in _TEMPORARY_STATUSES:
        raise _error("fails", status, "unavailable", retry_after=response.retry_after)
    raise _error("refuses the request", status, "rejected", hint=_CHECK_ADDRESS)


def _error(
    what: str, status: int, kind: ChatErrorKind, *, hint: str | None = None, retry_after: float | None = None
) -> ChatModelError:
    message = f"The endpoint of the model {what} (status {status})."
    return ChatModelError(message, kind=kind, hint=hint, retry_after=retry_after)


def _retry_after(header: str) -> float | None:
    """Return the seconds of a Retry-After header, given as a number or as a date."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - clock_time()
        except (ValueError, IndexError, OverflowError):
            return None
    # Neither negative nor NaN, which no comparison accepts.
    return seconds if 0 <= seconds < float("inf") else None


# A chat model that bounds what a failing endpoint costs: time, retries, concurrency and repeated failures.

# Circuit breaker: after repeated failures no call is made for a while, then one to see whether it works again.

_MAX_FAILURES = 5
_MIN_OPEN_SECONDS = 15.0
_MAX_OPEN_SECONDS = 300.0


class CircuitBreaker:
    """Opens after failures in a row; each failed probe doubles the time until the next."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures = 0
        self._open_until = 0.0
        self._open_seconds = _MIN_OPEN_SECONDS
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        return self._failures >= _MAX_FAILURES

    def admits(self) -> bool:
        """Tell whether a call may be made. While open, one call after the pause is admitted as a probe."""
        if not self.is_open:
            return True
        if self._is_probing or self._now() < self._open_until:
            return False
        self._is_probing = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._open_seconds = _MIN_OPEN_SECONDS
        self._is_probing = False

    def failed(self, retry_after: float | None = None) -> None:
        """Note a failure; the pause is at least what the endpoint asked for."""
        self._failures += 1
        if self.is_open:
            if self._is_probing:
                self._open_seconds = min(self._open_seconds * 2, _MAX_OPEN_SECONDS)
            pause = max(self._open_seconds, min(retry_after or 0.0, _MAX_OPEN_SECONDS))
            self._open_until = self._now() + pause
        self._is_probing = False

    def abandoned(self) -> None:
        """Note that a call ended without saying anything about the endpoint: it was cancelled, or ran out of time."""
        self._is_probing = False


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
