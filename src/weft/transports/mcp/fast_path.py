"""The direct lane: a plain tools/call over HTTP is answered here; whatever is not exactly that is the SDK's.

Nothing is refused here. A request the SDK would refuse, or might answer in another way, is handed on as it came.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import msgspec
from mcp.shared.inbound import decode_header_value
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from mcp_types.methods import validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from msgspec import UNSET, Raw, Struct, UnsetType
from pydantic import ValidationError

from weft.kernel.operation import Effect
from weft.kernel.trace_context import META_KEYS
from weft.transports.http.http_io import send_json
from weft.transports.mcp.caller import connection_of
from weft.transports.mcp.tool_calls import ToolCalls
from weft.transports.tools import Toolbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mcp.server.connection import Connection
    from mcp.server.context import CallNext, HandlerResult
    from mcp.server.streamable_http import StreamableHTTPServerTransport
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Message, Receive, Scope, Send

    from weft.app.app import App
    from weft.transports.mcp.caller import Context, McpCaller, WeftUser
    from weft.transports.mcp.server import WeftServer

    Headers = Mapping[bytes, bytes]
    Told = Mapping[str, str]

_METHOD: Literal["tools/call"] = "tools/call"
_MODERN = "2026-07-28"
_VERSIONS = frozenset(version.encode() for version in (*HANDSHAKE_PROTOCOL_VERSIONS, _MODERN))
_ENVELOPE_KEYS = frozenset({PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY})
_MOST_ENVELOPES = 256
_LONGEST_ENVELOPE_BYTES = 4_096
_IDLE_PRECISION_SECONDS = 1.0
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Params(Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _Message(Struct, forbid_unknown_fields=True):
    """A tools/call with nothing unusual about it; tasks, for one, are unusual."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: _Params


class _Text(Struct, tag_field="type", tag="text"):
    text: str


class _Result(Struct, rename="camel"):
    content: tuple[_Text]
    structured_content: Raw
    is_error: bool
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _Answer(Struct):
    id: int | str
    result: _Result
    jsonrpc: Literal["2.0"] = "2.0"


class _Parts(NamedTuple):
    """An envelope without what its request is part of, and that."""

    envelope: bytes
    told: Told


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Message).decode
_decode_parts = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_texts = msgspec.json.Decoder(dict[str, str]).decode
_decode_text = msgspec.json.Decoder(str).decode
_NOTHING: Told = {}


class DirectLane:
    """Stands before the SDK's session manager and takes from it what it can answer as the SDK would, for less."""

    def __init__(self, app: App, server: WeftServer, manager: StreamableHTTPSessionManager) -> None:
        self._call = ToolCalls(app, Toolbox(app.registry))
        # A call that waits may be cancelled, which takes the SDK; any other is over before that could matter.
        self._waiting = {operation.tool for operation in app.registry if operation.effect is Effect.WAIT}
        self._manager = manager
        self._connections: dict[str, Connection] = {}
        self._envelopes: set[bytes] = set()
        self._server_info = Raw(_encode({SERVER_INFO_META_KEY: server.server_info_stamp}))
        server.middleware.append(self._remember_connection)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._manager.max_request_body_size
        headers = _plain_headers(scope, limit)
        if headers is None:
            await self._manager.handle_request(scope, receive, send)
            return
        request = _ReadAhead(receive)
        message = _parsed(await request.body(limit))
        if message is None or not await self._answered(message, headers, scope["user"], send):
            await self._manager.handle_request(scope, request, send)

    async def _answered(self, message: _Message, headers: Headers, user: WeftUser, send: Send) -> bool:
        """Answer a call that is in order; one that is not is left alone."""
        if message.params.name in self._waiting:
            return False
        if headers[b"mcp-protocol-version"] == _MODERN.encode():
            return await self._answered_modern(message, headers, user, send)
        told = _told(message.params.meta)
        transport = self._open_connection(headers, user)
        if transport is None or told is None:
            return False
        caller = user.caller.telling(told, message.id, transport.mcp_session_id)
        with _held_open(transport):
            answer = await self._perform(message, caller)
            await send_json(send, 200, answer, {b"mcp-session-id": headers[b"mcp-session-id"]})
        return True

    async def _answered_modern(self, message: _Message, headers: Headers, user: WeftUser, send: Send) -> bool:
        told = self._told_in_envelope(message.params, headers)
        if told is None:
            return False
        answer = await self._perform(message, user.caller.telling(told, message.id, None))
        answer.result.result_type, answer.result.meta = "complete", self._server_info
        await send_json(send, 200, answer)
        return True

    async def _perform(self, message: _Message, caller: McpCaller) -> _Answer:
        answer = await self._call(caller, message.params.name, message.params.arguments)
        # A tool's text is its structured content once more, so that is encoded once.
        content = _encode(answer.content)
        return _Answer(message.id, _Result((_Text(content.decode()),), Raw(content), answer.is_error))

    def _told_in_envelope(self, params: _Params, headers: Headers) -> Told | None:
        """Return what a request of the stateless era says it is part of, if its headers and body say the same."""
        name = headers.get(b"mcp-name", b"").decode("latin-1")
        in_order = headers.get(b"mcp-method") == _METHOD.encode() and decode_header_value(name) == params.name
        if not in_order or params.meta is UNSET:
            return None
        envelope = bytes(params.meta)
        if envelope in self._envelopes:
            return _NOTHING
        parts = _parts(envelope)
        return parts.told if parts is not None and self._is_known(parts.envelope) else None

    def _is_known(self, envelope: bytes) -> bool:
        """Tell whether an envelope is valid, by the SDK's own model; a client sends the same with each request."""
        if envelope in self._envelopes:
            return True
        if len(envelope) > _LONGEST_ENVELOPE_BYTES or not _is_plain_envelope(envelope):
            return False
        if len(self._envelopes) >= _MOST_ENVELOPES:
            self._envelopes.clear()
        self._envelopes.add(envelope)
        return True

    def _open_connection(self, headers: Headers, user: WeftUser) -> StreamableHTTPServerTransport | None:
        """Return the connection a request of the handshake era continues, if its owner does and it is still open."""
        session_id = headers.get(b"mcp-session-id", b"").decode("latin-1")
        connection = self._connections.get(session_id)
        # The SDK offers no public way to these tables; its minor version is pinned for this.
        transport = self._manager._server_instances.get(session_id)  # noqa: SLF001
        if transport is None or connection is None:
            return None
        owner = self._manager._session_owners.get(session_id)  # noqa: SLF001
        if owner != user.principal or not connection.initialize_accepted:
            return None
        ending = transport.is_terminated or (transport.idle_scope is not None and transport.idle_scope.cancel_called)
        return None if ending else transport

    async def _remember_connection(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Remember who shakes hands: only the connection itself knows when that is done."""
        connection = connection_of(ctx.session)
        session_id = connection.session_id
        if ctx.method == "initialize" and session_id is not None and session_id not in self._connections:
            self._connections[session_id] = connection
            connection.exit_stack.callback(self._connections.pop, session_id, None)
        return await call_next(ctx)


class _ReadAhead:
    """A request's body, to be looked at before whoever answers reads it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: list[Message] = []

    async def body(self, limit: int) -> bytes | None:
        """Return the body; nothing if it is too large, or never came to its end."""
        size = 0
        while size <= limit:
            message = await self._receive()
            self._messages.append(message)
            if message["type"] != "http.request":
                return None
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join([part.get("body", b"") for part in self._messages])
        return None

    async def __call__(self) -> Message:
        return self._messages.pop(0) if self._messages else await self._receive()


def _plain_headers(scope: Scope, limit: int) -> Headers | None:
    """Return a request's headers if they are those of a tools/call as clients send it."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    plain = (
        scope["method"] == "POST"
        # Of a header that is there twice, who reads the first and who reads the last would disagree.
        and len(headers) == len(scope["headers"])
        and headers.get(b"content-type", b"").partition(b";")[0] == b"application/json"
        and headers.get(b"accept", b"").partition(b",")[0] in {b"application/json", b"*/*"}
        and headers.get(b"mcp-protocol-version") in _VERSIONS
        and length.isdigit()
        and int(length) <= limit
    )
    return headers if plain else None


def _parsed(body: bytes | None) -> _Message | None:
    try:
        return _decode(body) if body is not None else None
    except _UNREADABLE:
        return None


def _told(meta: Raw | UnsetType) -> Told | None:
    """Return what a request of the handshake era says it is part of, if it says nothing else beside its call."""
    if meta is UNSET:
        return _NOTHING
    try:
        told = _decode_texts(meta)
    except _UNREADABLE:
        return None
    return told if told.keys() <= META_KEYS else None


def _parts(envelope: bytes) -> _Parts | None:
    """Take what differs from request to request out of an envelope; nothing else in it does."""
    try:
        every = _decode_parts(envelope)
        told = {name: _decode_text(every.pop(name)) for name in META_KEYS & every.keys()}
    except _UNREADABLE:
        return None
    return _Parts(_encode(every) if told else envelope, told)


def _is_plain_envelope(envelope: bytes) -> bool:
    try:
        meta = msgspec.json.decode(envelope, type=dict[str, Any])
        validate_client_request(_METHOD, _MODERN, {"name": "", "_meta": meta})
    except (*_UNREADABLE, ValidationError):
        return False
    return meta[PROTOCOL_VERSION_META_KEY] == _MODERN and meta.keys() <= _ENVELOPE_KEYS


@contextmanager
def _held_open(transport: StreamableHTTPServerTransport) -> Iterator[None]:
    """Keep a connection from going idle while a call of it is answered, as the SDK does around what it answers."""
    idle = transport.idle_scope or anyio.CancelScope()
    patience = transport._idle_timeout or math.inf  # noqa: SLF001
    transport._requests_in_flight += 1  # noqa: SLF001
    # Each move of the deadline is a new timer, so where calls follow each other only one in a second moves it.
    if idle.deadline < anyio.current_time() + patience - _IDLE_PRECISION_SECONDS:
        idle.deadline = math.inf
    try:
        yield
    finally:
        transport._requests_in_flight -= 1  # noqa: SLF001
        if not transport._requests_in_flight and idle.deadline == math.inf:  # noqa: SLF001
            idle.deadline = anyio.current_time() + patience
