"""The routes of the model proxy: requests go to the provider, and answers come back, byte for byte.

Nothing is parsed and written again. What Weftline does itself is done before in a bounded time, or behind the answer.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote_to_bytes

import httpcore2

from weftline.app.proxied_calls import CallsUnchecked, is_own_fault
from weftline.app.proxied_edits import EditedRequest, GivenRequest
from weftline.kernel.client_gone import ClientGone, stoppable, until_client_leaves
from weftline.kernel.errors import MethodNotAllowed, ServerBusy, WeftlineError
from weftline.models.language_models.answer_filter import AnswerTooLarge, WholeFilter, answer_filter, is_readable
from weftline.models.language_models.answer_usage import (
    Usage,
    answer_reader,
    is_answered_later,
    is_event_stream,
    requested_model,
)
from weftline.models.language_models.conversation_requests import form_of
from weftline.providers.webhook_sender import failure_of
from weftline.sessions.events.webhooks import AddressNotAllowed
from weftline.transports.http.connections import connection_of
from weftline.transports.http.http_io import hold
from weftline.transports.proxy.errors import (
    CallerUnknown,
    KeyMisplaced,
    NoProviderKey,
    UpstreamUnreachable,
    error_event,
    refuse,
)
from weftline.transports.proxy.headers import (
    credential_header,
    has_credential,
    has_misplaced_key,
    names_own_key,
    request_headers,
    response_headers,
    value_of,
    without_own_key,
)
from weftline.transports.proxy.observer import EndedCall
from weftline.transports.proxy.routes import check_path, route_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from starlette.types import Receive, Scope, Send

    from weftline.app.dispatch import CallContext
    from weftline.app.proxied_calls import CallGuard
    from weftline.app.proxied_edits import ProxiedEdits
    from weftline.models.language_models.answer_filter import AnswerFilter
    from weftline.models.language_models.answer_usage import AnswerReader
    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.models.language_models.content import WireForm
    from weftline.providers.model_upstreams import UpstreamConnections, Upstreams
    from weftline.transports.proxy.kept_calls import KeptCall
    from weftline.transports.proxy.observer import FindCaller, Observer
    from weftline.transports.proxy.routes import ProxyRoute

    Header = tuple[bytes, bytes]

_log = logging.getLogger("weftline.proxy")
_MODEL_CALLS = re.compile(
    rb"(?:/v1|/v1beta/openai)?/(?:messages|chat/completions|responses|responses/compact|completions|embeddings)"
    # Gemini has the model in the path.
    rb"|/v1(?:beta|alpha)?/models/(?P<model>[^/:]+):(?:streamGenerateContent|generateContent|embedContent)"
)
# What the server's key of a provider may be used for besides.
_UNPAID = re.compile(
    rb"POST (?:/v1(?:beta|alpha)?)?/(?:messages/count_tokens|models/[^/:]+:countTokens)"
    rb"|GET (?:/v1(?:beta|alpha)?)?/models(?:/[^/:]+)?"
)
# The conversation of a call, sent to have its tokens counted or to be compacted: it is changed as the call is.
_BESIDE_CALLS: dict[bytes, WireForm] = {
    b"/messages/count_tokens": "anthropic",
    b":countTokens": "gemini",
    b"/responses/compact": "openai_responses",
    b"/responses/input_tokens": "openai_responses",
}
# About what a token has of a request, of a whole answer, and of a stream, where each has an event around it.
_TOKEN_BYTES, _STREAMED_TOKEN_BYTES = 4, 100
# An answer of OpenAI Responses that was stored.
_STORED_ANSWER = re.compile(rb"(?:/v1)?/responses/[^/]+")
_SLASHES = re.compile(rb"/+")
# The largest request that Anthropic takes. The rest of a larger one is read as it is forwarded.
_MAX_READ_BYTES = 32 * 2**20
_LENGTH, _CODING = b"content-length", b"transfer-encoding"
_SUCCESS = range(200, 300)
_PRIVATE_HINT = (
    "Its name leads to a private network. The operator can allow that with WEFTLINE_PROXY_PRIVATE_HOSTS=NAME."
)
# A provider that cannot be reached, or breaks off.
_LOST = (
    AddressNotAllowed,
    OSError,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
)


class Callers(Protocol):
    """Finds out who calls."""

    def context(self, key: str | None, scope: Scope) -> CallContext:
        """Return in whose name what is done about a call is done."""
        ...

    async def find(self, key: str | None, scope: Scope) -> ChatCaller:
        """Return whom a call is metered for; raises WeftlineError for who may not call."""
        ...

    async def check(self, caller: ChatCaller) -> None:
        """Raise BudgetExceeded for who may make no more calls of models."""
        ...

    async def guard(self, key: str | None, scope: Scope) -> CallGuard | None:
        """Return what checks the tool calls of answers; None if nothing has to."""
        ...

    def fails_closed(self, key: str | None) -> bool:
        """Tell whether calls are refused while it cannot be found out who makes them."""
        ...

    def keeps_key(self, route: str) -> bool:
        """Tell whether there is a key for the upstream of a route that some callers may use."""
        ...

    async def provider_key(self, route: str, key: str | None, scope: Scope) -> bytes | None:
        """Return the key of a provider that the caller may use."""
        ...


class ProxyEndpoint:
    """ASGI application of the routes of the proxy."""

    def __init__(
        self,
        upstreams: Upstreams,
        connections: UpstreamConnections,
        callers: Callers,
        observer: Observer,
        editor: ProxiedEdits | None = None,
        *,
        wait_seconds: float,
    ) -> None:
        self._upstreams = upstreams
        self._connections = connections
        self._callers = callers
        self._observer = observer
        self._editor = editor
        self._wait_seconds = wait_seconds
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to meter the calls that a process which was killed has left."""
        self._starting = asyncio.create_task(self._observer.meter_left(), name="weftline-proxy-start")

    async def aclose(self) -> None:
        """Close the connections to upstreams, and note the calls that ended last."""
        await self._connections.aclose()
        if self._starting is not None:
            self._starting.cancel()
        await self._observer.aclose()
        if self._editor is not None:
            await self._editor.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = route_of(scope)
        call = _Call(scope, receive, send, route)
        caller: ChatCaller | None = None
        try:
            caller = await self._find_caller(call)
            call.kept = self._observer.keep(call.form, caller, scope["headers"])
            with stoppable(), until_client_leaves():
                await self._forward(call, caller)
        except ClientGone:
            pass
        except _LOST as error:
            await call.end_lost(error)
        except WeftlineError as error:
            await call.refuse(error)
        if call.was_sent:
            find = partial(self._callers.find, route.key, scope)
            self._observer.note(call.ended(caller, find, self._callers.context(route.key, scope)))
        elif call.kept is not None:
            call.kept.release()

    async def _find_caller(self, call: _Call) -> ChatCaller | None:
        """Return who calls; None if that cannot be found out in time. Raises WeftlineError for who may not call."""
        started = perf_counter()
        try:
            async with asyncio.timeout(self._wait_seconds):
                caller = await self._callers.find(call.route.key, call.scope)
                if call.is_model_call:
                    await self._callers.check(caller)
                if call.answer_form is not None:
                    call.guard = await self._callers.guard(call.route.key, call.scope)
                call.waited = perf_counter() - started
                return caller
        except WeftlineError as error:
            if not is_own_fault(error):
                raise
        except TimeoutError:
            pass
        except Exception:  # noqa: BLE001 - likewise
            _log.exception("cannot find out who calls the model proxy")
        if self._callers.fails_closed(call.route.key):
            raise CallerUnknown("It cannot be found out now who calls.")
        return None

    async def _forward(self, call: _Call, caller: ChatCaller | None) -> None:
        provider, path, _ = call.route
        check_path(path)
        if call.scope["method"] == "CONNECT":
            raise MethodNotAllowed("CONNECT is no method of an API.", hint="Send a request of the provider's API.")
        if names_own_key(path + b"?" + call.scope["query_string"]):
            raise KeyMisplaced("The path or query has a Weftline key.")
        await call.read_body()
        await call.withhold_results()
        if self._editor is not None and caller is not None and (given := call.given()) is not None:
            context = self._callers.context(call.route.key, call.scope)
            seconds = max(self._wait_seconds - call.waited, 0)
            call.edited = await self._editor.edit(caller, context, given, seconds)
        by_model = call.is_model_call and self._upstreams.depends_on_model(provider)
        upstream = self._upstreams.find(provider, call.name_model() if by_model else "")
        query = call.scope["query_string"]
        target = path + b"?" + query if query else path
        headers = call.headers(upstream.host)
        if not has_credential(call.scope["headers"], query):
            if self._callers.keeps_key(upstream.route):
                headers += await self._credential(call, caller, upstream.route)
            if not call.has_servers_key and has_misplaced_key(call.scope["headers"]):
                raise KeyMisplaced("A Weftline key is in the place of the provider's.")
        call.was_sent = True
        async with self._connections.send(upstream, call.scope["method"], target, headers, call.content()) as response:
            await call.start(response)
            async with aclosing(response.aiter_stream()) as chunks:
                async for chunk in chunks:
                    await call.pass_on(chunk)
        await call.finish()

    async def _credential(self, call: _Call, caller: ChatCaller | None, route: str) -> list[Header]:
        """Return the header with the server's key of a provider; none if the caller may not use it."""
        try:
            # Without knowing the caller, nobody knows its budgets.
            key = None if caller is None else await self._callers.provider_key(route, call.route.key, call.scope)
        except WeftlineError as error:
            if not is_own_fault(error):
                raise
            caller = key = None
        if caller is None:
            raise CallerUnknown("It cannot be found out now who calls.")
        if key is None:
            return []
        if not call.may_use_servers_key:
            raise NoProviderKey(f"The request to {call.route.path.decode('latin-1')[:100]} has no key of the provider.")
        if call.form == "openai_responses" and call.is_answered_later():
            raise NoProviderKey("A request that runs in the background, or cannot be read, has no key of the provider.")
        call.has_servers_key = True
        return [credential_header(call.route.provider, call.form, key)]


class _Call:
    """One request, on its way to the provider and back."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, route: ProxyRoute) -> None:
        self.scope = scope
        self.route = route
        self.was_sent = False
        # As servers read it: a path that is written in another way is the same call.
        path = _SLASHES.sub(b"/", unquote_to_bytes(route.path)).rstrip(b"/")
        found = _MODEL_CALLS.fullmatch(path) if scope["method"] == "POST" else None
        self.is_model_call = found is not None
        self.form = form_of(path.decode("latin-1")) if self.is_model_call else None
        self._conversation_form = self.form
        if self.form is None and scope["method"] == "POST":
            beside = (form for end, form in _BESIDE_CALLS.items() if path.endswith(end))
            self._conversation_form = next(beside, None)
        is_unpaid = _UNPAID.fullmatch(b"%b %b" % (scope["method"].encode(), path)) is not None
        self.may_use_servers_key = self.is_model_call or is_unpaid
        self.has_servers_key = False
        self._sizes = [0, 0]
        self._is_stream = False
        is_stored = scope["method"] == "GET" and _STORED_ANSWER.fullmatch(path) is not None
        self.answer_form: WireForm | None = "openai_responses" if is_stored else self.form
        self._receive = receive
        self._send = send
        self._at = datetime.now(UTC)
        self._started = perf_counter()
        self._has_body = any(name in {_LENGTH, _CODING} for name, _ in scope["headers"])
        self._read: list[bytes] = []
        self._is_read = not self._has_body
        self._model = "" if found is None else (found["model"] or b"").decode("latin-1")
        self._status = 0
        self._is_complete = False
        self._reader: AnswerReader | None = None
        self._filter: AnswerFilter | None = None
        # The head of an answer that is held back whole.
        self._head: dict[str, Any] | None = None
        self._is_begun = False
        self.guard: CallGuard | None = None
        self.kept: KeptCall | None = None
        self.edited: EditedRequest | None = None
        # For Weftline itself.
        self.waited = 0.0

    async def read_body(self) -> None:
        """Read the body of a model call, if it is not too large; of all others, only what has come already."""
        size, limit = 0, _MAX_READ_BYTES if self.is_model_call or self._conversation_form else 0
        while not self._is_read and size <= limit:
            part = await self._next_part()
            size += len(part)
            try:
                hold(self.scope, len(part))
            except ServerBusy:
                # Others keep much already: the rest is read as it is forwarded.
                limit = -1
            self._read.append(part)

    def given(self) -> GivenRequest | None:
        """Return the request of a conversation; None if it is too large, or none."""
        form = self._conversation_form
        if form is None or not self._is_read:
            return None
        return GivenRequest(form, dict(self.scope["headers"]), b"".join(self._sent), is_call=self.form is not None)

    async def withhold_results(self) -> None:
        """Leave out results of tools that the gate holds, for tenants that fail closed."""
        if self.form is None or self.guard is None or not self.guard.fails_closed:
            return
        given = self.given()
        body = await self.guard.withhold(given)
        if given is not None and body is not None and body != given.body:
            self.edited = EditedRequest(body)

    def headers(self, host: bytes) -> list[tuple[bytes, bytes]]:
        given = without_own_key(self.scope["headers"])
        length = sum(map(len, self._sent)) if self._is_read else None
        if length is None and (announced := value_of(_LENGTH, given)):
            length = int(announced)
        is_plain = self.guard is not None and self.guard.checks_calls
        return request_headers(given, host, length, has_body=self._has_body, is_plain=is_plain)

    def content(self) -> AsyncGenerator[bytes] | None:
        return self._parts() if self._has_body else None

    def name_model(self) -> str:
        """Return the model that the request names."""
        self._model = self._model or requested_model(b"".join(self._read))
        return self._model

    def is_answered_later(self) -> bool:
        """Tell whether the usage of a request may not be in its answer."""
        is_plain = value_of(b"content-encoding", self.scope["headers"]) in {b"", b"identity"}
        return not (is_plain and self._is_read) or is_answered_later(b"".join(self._sent))

    @property
    def _sent(self) -> list[bytes]:
        """Return what has been read of the body, as it is to be forwarded."""
        return self._read if self.edited is None else [self.edited.body]

    async def start(self, response: httpcore2.Response) -> None:
        """Begin the answer; the request is not needed any more."""
        headers = response_headers(response.headers)
        connection = connection_of(self.scope)
        if connection is not None:
            connection.omit_own_headers(self.scope)
        if (
            self.guard is not None
            and self.guard.checks_calls
            and self.answer_form is not None
            and response.status in _SUCCESS
        ):
            headers = self._filter_answer(self.answer_form, self.guard, headers)
        self._head = {"type": "http.response.start", "status": response.status, "headers": headers}
        self._status = response.status
        if not isinstance(self._filter, WholeFilter):
            await self._begin()
        if not self.is_model_call:
            return
        if response.status in _SUCCESS:
            kind, kept = value_of(b"content-type", headers), self.kept
            if kept is not None and self._is_read:
                kept.keep_request(self._read)
                kept.is_stream = is_event_stream(kind)
            keep = None if kept is None else kept.keep_answer
            self._reader = answer_reader(kind, value_of(b"content-encoding", headers), keep)
        else:
            self.name_model()
        self._sizes[0] = sum(map(len, self._sent))
        self._is_stream = is_event_stream(value_of(b"content-type", headers))
        self._read.clear()
        if self.edited is not None:
            self.edited = self.edited._replace(body=b"")

    def _filter_answer(self, form: WireForm, guard: CallGuard, headers: list[Header]) -> list[Header]:
        """Let the tool calls of the answer be checked; return its headers without what changes then."""
        kind, encoding = value_of(b"content-type", headers), value_of(b"content-encoding", headers)
        if is_readable(kind, encoding):
            self._filter = answer_filter(form, encoding, guard.checks, is_stream=is_event_stream(kind))
            return [header for header in headers if header[0] not in {_LENGTH, b"content-encoding"}]
        if guard.fails_closed:
            raise CallsUnchecked("The provider's answer is in a form whose tool calls cannot be checked.")
        return headers

    async def _begin(self) -> None:
        """Send the head of the answer, if it was not sent."""
        if self._head is not None:
            head, self._head = self._head, None
            self._is_begun = True
            await self._send(head)

    async def pass_on(self, chunk: bytes) -> None:
        if self._filter is None:
            await self._pass_on(chunk)
        else:
            await self._pass_checked(self._filter, self._filter.feed(chunk))

    async def _pass_checked(self, answer: AnswerFilter, parts: AsyncIterator[bytes]) -> None:
        """Pass on what a filter yields; if it fails, what it holds back, or an error if it has to be checked."""
        try:
            async for part in parts:
                await self._pass_on(part)
        except (ClientGone, CallsUnchecked, *_LOST):
            raise
        except Exception as error:
            if not isinstance(error, AnswerTooLarge):
                _log.exception("cannot check the tool calls of an answer")
            if self.guard is not None and self.guard.fails_closed:
                raise CallsUnchecked("The tool calls in the provider's answer cannot be checked.") from error
            await self._pass_on(answer.give_up())

    async def _pass_on(self, chunk: bytes) -> None:
        await self._begin()
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._sizes[1] += len(chunk)
        if self._reader is not None:
            try:
                self._reader.feed(chunk)
            except Exception:  # noqa: BLE001 - an answer is passed on whatever it is
                _log.exception("cannot read the usage of an answer")
                self._reader = None

    async def finish(self) -> None:
        if self._filter is not None:
            await self._pass_checked(self._filter, self._filter.finish())
        self._is_complete = True
        await self._begin()
        await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, error: WeftlineError) -> None:
        """Answer with an error in the provider's form; within an answer that has begun, as its last event."""
        if not self._is_begun:
            await refuse(self.scope, self._send, self.route.provider, error)
            return
        event = error_event(self.route.provider, self.answer_form, error)
        await self._send({"type": "http.response.body", "body": event})

    async def end_lost(self, error: Exception) -> None:
        """Answer with an error if the provider has not begun to; else end as it did, in the middle."""
        if not self._status:
            if self.is_model_call:
                self.name_model()
            hint = _PRIVATE_HINT if isinstance(error, AddressNotAllowed) else None
            problem = UpstreamUnreachable(f"The provider cannot be reached ({failure_of(error)}).", hint=hint)
            await refuse(self.scope, self._send, self.route.provider, problem)
            return
        connection = connection_of(self.scope)
        if connection is not None:
            connection.break_off()
            while (await self._receive())["type"] != "http.disconnect":
                pass

    def ended(self, caller: ChatCaller | None, find_caller: FindCaller, context: CallContext) -> EndedCall:
        return EndedCall(
            at=self._at,
            method=self.scope["method"],
            path=self.route.path.decode("latin-1"),
            status=self._status,
            is_complete=self._is_complete,
            seconds=perf_counter() - self._started,
            model=self._model,
            reader=self._reader,
            is_model_call=self.is_model_call,
            caller=caller,
            find_caller=find_caller,
            context=context,
            kept=self.kept,
            edits=None if self.edited is None else self.edited.note,
            estimate=self._estimate() if self.has_servers_key and self._status in _SUCCESS else None,
        )

    def _estimate(self) -> Usage:
        """Return about what the call used, for one whose usage is not reported."""
        asked, answered = self._sizes
        each = _STREAMED_TOKEN_BYTES if self._is_stream else _TOKEN_BYTES
        return Usage(input_tokens=asked // _TOKEN_BYTES, output_tokens=answered // each)

    async def _parts(self) -> AsyncGenerator[bytes]:
        for part in self._sent:
            yield part
        while not self._is_read:
            yield await self._next_part()

    async def _next_part(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._is_read = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part
