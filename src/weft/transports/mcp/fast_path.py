"""Fast path for plain tools/call requests over HTTP, without the SDK's session machinery.

Nothing is refused here: a request that the SDK would refuse, or might answer differently, is passed on unchanged.
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

from weft.kernel.correlation import META_KEYS
from weft.kernel.operation import Effect
from weft.transports.http.http_io import send_json
from weft.transports.mcp.caller import ToolCalls, connection_of
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
    CorrelationMeta = Mapping[str, str]

_METHOD: Literal["tools/call"] = "tools/call"
_MODERN = "2026-07-28"
_VERSIONS = frozenset(version.encode() for version in (*HANDSHAKE_PROTOCOL_VERSIONS, _MODERN))
_ENVELOPE_KEYS = frozenset({PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY})
_MAX_ENVELOPES = 256
_MAX_ENVELOPE_BYTES = 4_096
_IDLE_PRECISION_SECONDS = 1.0
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Params(Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _Message(Struct, forbid_unknown_fields=True):
    """A plain tools/call; one with further fields, such as a task, is left to the SDK."""

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
    """Envelope without its correlation ids, and the ids."""

    envelope: bytes
    ids: CorrelationMeta


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Message).decode
_decode_parts = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_texts = msgspec.json.Decoder(dict[str, str]).decode
_decode_text = msgspec.json.Decoder(str).decode
_NO_IDS: CorrelationMeta = {}


class FastPath:
    """ASGI application in front of the SDK's session manager that answers plain tool calls itself."""

    def __init__(self, app: App, server: WeftServer, manager: StreamableHTTPSessionManager) -> None:
        self._call = ToolCalls(app, Toolbox(app.registry))
        # A waiting call may be cancelled, which only the SDK handles.
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
        """Answer a plain call and return True; return False for any other."""
        if message.params.name in self._waiting:
            return False
        if headers[b"mcp-protocol-version"] == _MODERN.encode():
            return await self._answered_modern(message, headers, user, send)
        ids = _ids_in(message.params.meta)
        transport = self._open_connection(headers, user)
        if transport is None or ids is None:
            return False
        caller = user.caller.with_ids(ids, message.id, transport.mcp_session_id)
        with _kept_alive(transport):
            answer = await self._perform(message, caller)
            await send_json(send, 200, answer, {b"mcp-session-id": headers[b"mcp-session-id"]})
        return True

    async def _answered_modern(self, message: _Message, headers: Headers, user: WeftUser, send: Send) -> bool:
        ids = self._ids_in_envelope(message.params, headers)
        if ids is None:
            return False
        answer = await self._perform(message, user.caller.with_ids(ids, message.id, None))
        answer.result.result_type, answer.result.meta = "complete", self._server_info
        await send_json(send, 200, answer)
        return True

    async def _perform(self, message: _Message, caller: McpCaller) -> _Answer:
        answer = await self._call(caller, message.params.name, message.params.arguments)
        # The text of a tool result repeats its structured content, so it is encoded once.
        content = _encode(answer.content)
        return _Answer(message.id, _Result((_Text(content.decode()),), Raw(content), answer.is_error))

    def _ids_in_envelope(self, params: _Params, headers: Headers) -> CorrelationMeta | None:
        """Return the correlation ids of a stateless-era request if its headers match its body."""
        name = headers.get(b"mcp-name", b"").decode("latin-1")
        in_order = headers.get(b"mcp-method") == _METHOD.encode() and decode_header_value(name) == params.name
        if not in_order or params.meta is UNSET:
            return None
        envelope = bytes(params.meta)
        if envelope in self._envelopes:
            return _NO_IDS
        parts = _parts(envelope)
        return parts.ids if parts is not None and self._is_known(parts.envelope) else None

    def _is_known(self, envelope: bytes) -> bool:
        """Validate an envelope with the SDK's model, and cache it: a client sends the same with each request."""
        if envelope in self._envelopes:
            return True
        if len(envelope) > _MAX_ENVELOPE_BYTES or not _is_plain_envelope(envelope):
            return False
        if len(self._envelopes) >= _MAX_ENVELOPES:
            self._envelopes.clear()
        self._envelopes.add(envelope)
        return True

    def _open_connection(self, headers: Headers, user: WeftUser) -> StreamableHTTPServerTransport | None:
        """Return the handshake-era connection of a request if the user owns it and it is open."""
        session_id = headers.get(b"mcp-session-id", b"").decode("latin-1")
        connection = self._connections.get(session_id)
        # The SDK has no public access to these tables; its minor version is pinned for this.
        transport = self._manager._server_instances.get(session_id)  # noqa: SLF001
        if transport is None or connection is None:
            return None
        owner = self._manager._session_owners.get(session_id)  # noqa: SLF001
        if owner != user.principal or not connection.initialize_accepted:
            return None
        ending = transport.is_terminated or (transport.idle_scope is not None and transport.idle_scope.cancel_called)
        return None if ending else transport

    async def _remember_connection(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Store each connection at its handshake: only the connection knows when that is complete."""
        connection = connection_of(ctx.session)
        session_id = connection.session_id
        if ctx.method == "initialize" and session_id is not None and session_id not in self._connections:
            self._connections[session_id] = connection
            connection.exit_stack.callback(self._connections.pop, session_id, None)
        return await call_next(ctx)


class _ReadAhead:
    """Request body that is read here and can be read again by the SDK."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: list[Message] = []

    async def body(self, limit: int) -> bytes | None:
        """Return the body; None if it is too large or incomplete."""
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
    """Return the headers of a request if they are those of a plain tools/call."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    plain = (
        scope["method"] == "POST"
        # A repeated header is ambiguous.
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


def _ids_in(meta: Raw | UnsetType) -> CorrelationMeta | None:
    """Return the correlation ids of a handshake-era request; None if its _meta has other keys."""
    if meta is UNSET:
        return _NO_IDS
    try:
        ids = _decode_texts(meta)
    except _UNREADABLE:
        return None
    return ids if ids.keys() <= META_KEYS else None


def _parts(envelope: bytes) -> _Parts | None:
    """Separate the correlation ids, which differ between requests, from the rest of an envelope."""
    try:
        fields = _decode_parts(envelope)
        ids = {name: _decode_text(fields.pop(name)) for name in META_KEYS & fields.keys()}
    except _UNREADABLE:
        return None
    return _Parts(_encode(fields) if ids else envelope, ids)


def _is_plain_envelope(envelope: bytes) -> bool:
    try:
        meta = msgspec.json.decode(envelope, type=dict[str, Any])
        validate_client_request(_METHOD, _MODERN, {"name": "", "_meta": meta})
    except (*_UNREADABLE, ValidationError):
        return False
    return meta[PROTOCOL_VERSION_META_KEY] == _MODERN and meta.keys() <= _ENVELOPE_KEYS


@contextmanager
def _kept_alive(transport: StreamableHTTPServerTransport) -> Iterator[None]:
    """Keep a connection from going idle during a call, as the SDK does for its own calls."""
    idle = transport.idle_scope or anyio.CancelScope()
    timeout = transport._idle_timeout or math.inf  # noqa: SLF001
    transport._requests_in_flight += 1  # noqa: SLF001
    # Each change of the deadline creates a timer, so it changes at most once a second.
    if idle.deadline < anyio.current_time() + timeout - _IDLE_PRECISION_SECONDS:
        idle.deadline = math.inf
    try:
        yield
    finally:
        transport._requests_in_flight -= 1  # noqa: SLF001
        if not transport._requests_in_flight and idle.deadline == math.inf:  # noqa: SLF001
            idle.deadline = anyio.current_time() + timeout
