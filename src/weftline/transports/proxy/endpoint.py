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
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

import httpcore2

from weftline.app.proxied_edits import GivenRequest
from weftline.kernel.client_gone import ClientGone, stoppable, until_client_leaves
from weftline.kernel.errors import (
    InternalError,
    InvalidInput,
    RateLimited,
    ServerBusy,
    Unavailable,
    WeftlineError,
)
from weftline.models.language_models.answer_usage import answer_reader, is_event_stream, requested_model
from weftline.models.language_models.conversation_requests import form_of
from weftline.providers.model_upstreams import PROVIDERS
from weftline.providers.webhook_sender import failure_of
from weftline.sessions.events.webhooks.model import AddressNotAllowed
from weftline.transports.http.connections import connection_of
from weftline.transports.http.http_io import hold
from weftline.transports.proxy.errors import CallerUnknown, UpstreamUnreachable, refuse
from weftline.transports.proxy.headers import KEY_HEADER, request_headers, response_headers, value_of
from weftline.transports.proxy.observer import EndedCall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Receive, Scope, Send

    from weftline.app.dispatch import CallContext
    from weftline.app.proxied_edits import EditedRequest, ProxiedEdits
    from weftline.models.language_models.answer_usage import AnswerReader
    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.models.language_models.conversation_requests import RequestForm
    from weftline.providers.model_upstreams import UpstreamConnections, Upstreams
    from weftline.transports.proxy.kept_calls import KeptCall
    from weftline.transports.proxy.observer import FindCaller, Observer

PREFIXES = tuple(f"/{name}/".encode() for name in PROVIDERS)
_log = logging.getLogger("weftline.proxy")
_KEY_START = b"weftline."
_MODEL_CALLS = re.compile(
    rb"(?:/v1|/v1beta/openai)/(?:messages|chat/completions|responses|responses/compact|completions|embeddings)"
    # Gemini has the model in the path.
    rb"|/v1(?:beta|alpha)?/models/(?P<model>[^/:]+):(?:streamGenerateContent|generateContent|embedContent)"
)
# The largest request that Anthropic takes. The rest of a larger one is read as it is forwarded.
_MAX_READ_BYTES = 32 * 2**20
_LENGTH, _CODING = b"content-length", b"transfer-encoding"
_SUCCESS = range(200, 300)
_PRIVATE_HINT = (
    "Its name leads to a private network. The operator can allow that with WEFTLINE_PROXY_PRIVATE_HOSTS=NAME."
)
# How many times a path is percent-decoded before it is checked: servers on the way may each decode it once.
_MAX_DECODED = 3
_SEPARATOR = re.compile(rb"[/\\]")
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


class _Route(NamedTuple):
    """A request's provider, its path at the provider, and the Weftline key that it came with."""

    provider: str
    path: bytes
    key: str | None


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
        fails_closed: bool = False,
    ) -> None:
        self._upstreams = upstreams
        self._connections = connections
        self._callers = callers
        self._observer = observer
        self._editor = editor
        self._wait_seconds = wait_seconds
        self._fails_closed = fails_closed

    async def aclose(self) -> None:
        """Close the connections to upstreams, and note the calls that ended last."""
        await self._connections.aclose()
        await self._observer.aclose()
        if self._editor is not None:
            await self._editor.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = _route(scope)
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
            await refuse(scope, send, route.provider, error)
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
                call.waited = perf_counter() - started
                return caller
        except WeftlineError as error:
            # What says nothing about the caller must not end a call.
            if not isinstance(error, Unavailable | InternalError) or isinstance(error, RateLimited):
                raise
        except TimeoutError:
            pass
        except Exception:  # noqa: BLE001 - likewise
            _log.exception("cannot find out who calls the model proxy")
        if self._fails_closed:
            raise CallerUnknown("It cannot be found out now who calls.")
        return None

    async def _forward(self, call: _Call, caller: ChatCaller | None) -> None:
        provider, path, _ = call.route
        if _leads_out(path):
            raise InvalidInput("The path has segments of dots.", hint="Send the path of the provider's API.")
        await call.read_body()
        if self._editor is not None and caller is not None and (given := call.given()) is not None:
            context = self._callers.context(call.route.key, call.scope)
            seconds = max(self._wait_seconds - call.waited, 0)
            call.edited = await self._editor.edit(caller, context, given, seconds)
        by_model = call.is_model_call and self._upstreams.depends_on_model(provider)
        upstream = self._upstreams.find(provider, call.name_model() if by_model else "")
        query = call.scope["query_string"]
        target = path + b"?" + query if query else path
        headers = call.headers(upstream.host)
        call.was_sent = True
        async with self._connections.send(upstream, call.scope["method"], target, headers, call.content()) as response:
            await call.start(response)
            async with aclosing(response.aiter_stream()) as chunks:
                async for chunk in chunks:
                    await call.pass_on(chunk)
        await call.finish()


class _Call:
    """One request, on its way to the provider and back."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, route: _Route) -> None:
        self.scope = scope
        self.route = route
        self.was_sent = False
        found = _MODEL_CALLS.fullmatch(route.path) if scope["method"] == "POST" else None
        self.is_model_call = found is not None
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
        self.kept: KeptCall | None = None
        self.edited: EditedRequest | None = None
        # For Weftline itself.
        self.waited = 0.0

    @property
    def form(self) -> RequestForm | None:
        """Return the form of the conversation that the call belongs to; None if it belongs to none."""
        return form_of(self.route.provider, self.route.path.decode("latin-1")) if self.is_model_call else None

    async def read_body(self) -> None:
        """Read the body of a model call, if it is not too large; of all others, only what has come already."""
        size, limit = 0, _MAX_READ_BYTES if self.is_model_call else 0
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
        form = self.form
        if form is None or not self._is_read:
            return None
        return GivenRequest(form, dict(self.scope["headers"]), b"".join(self._read))

    def headers(self, host: bytes) -> list[tuple[bytes, bytes]]:
        given = self.scope["headers"]
        length = sum(map(len, self._sent)) if self._is_read else None
        if length is None and (announced := value_of(_LENGTH, given)):
            length = int(announced)
        return request_headers(given, host, length, has_body=self._has_body)

    def content(self) -> AsyncGenerator[bytes] | None:
        return self._parts() if self._has_body else None

    def name_model(self) -> str:
        """Return the model that the request names."""
        self._model = self._model or requested_model(b"".join(self._read))
        return self._model

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
        await self._send({"type": "http.response.start", "status": response.status, "headers": headers})
        self._status = response.status
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
        self._read.clear()
        if self.edited is not None:
            self.edited = self.edited._replace(body=b"")

    async def pass_on(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        if self._reader is not None:
            try:
                self._reader.feed(chunk)
            except Exception:  # noqa: BLE001 - an answer is passed on whatever it is
                _log.exception("cannot read the usage of an answer")
                self._reader = None

    async def finish(self) -> None:
        self._is_complete = True
        await self._send({"type": "http.response.body", "body": b""})

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
        )

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


def _leads_out(path: bytes) -> bool:
    """Tell whether a path may lead out of that of the upstream, for a server that decodes more of it than others."""
    for _ in range(_MAX_DECODED):
        path = unquote_to_bytes(path)
    return any(segment.partition(b";")[0] in {b".", b".."} for segment in _SEPARATOR.split(path))


def _route(scope: Scope) -> _Route:
    """Take a request's path apart: /PROVIDER/PATH or /PROVIDER/KEY/PATH; a key in a header goes before one in it."""
    _, provider, path = scope["raw_path"].split(b"/", 2)
    first, slash, rest = path.partition(b"/")
    key = None
    if first.startswith(_KEY_START):
        key, path = first, rest if slash else b""
    key = value_of(KEY_HEADER, scope["headers"]) or key
    return _Route(provider.decode(), b"/" + path, None if key is None else key.decode("latin-1"))
