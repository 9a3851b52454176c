"""Fast path for plain tools/call and tools/list requests over HTTP, without the SDK's session machinery.

Nothing is refused here: a request that the SDK would refuse, or might answer differently, is passed on unchanged.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import mcp_types as types
import msgspec
from mcp.shared.inbound import decode_header_value
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from mcp_types.methods import serialize_server_result, validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from msgspec import UNSET, Raw, Struct, UnsetType
from pydantic import ValidationError

from weftline.app.tools.toolbox import called_tool
from weftline.kernel.correlation import META_KEYS
from weftline.kernel.errors import ContentTooLarge, WeftlineError
from weftline.kernel.operation import Effect
from weftline.prompts.gateway.model import SEPARATOR
from weftline.transports.answer_json import encode_answer, sliced
from weftline.transports.http.http_io import check_length, hold, send_json
from weftline.transports.mcp.caller import ToolCalls, connection_of
from weftline.transports.mcp.elicitation import PassedOn, can_elicit
from weftline.transports.mcp.server import shown_warning, tool_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mcp.server.context import CallNext, HandlerResult
    from mcp.server.session import ServerSession
    from mcp.server.streamable_http import StreamableHTTPServerTransport
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Message, Receive, Scope, Send

    from weftline.app.app import App
    from weftline.app.tools.toolbox import ToolView
    from weftline.transports.mcp.caller import Context, McpCaller, WeftlineUser
    from weftline.transports.mcp.server import WeftlineServer
    from weftline.transports.mcp.subscriptions import Subscriptions

    Headers = Mapping[bytes, bytes]
    CorrelationMeta = Mapping[str, str]


# Reading a request body before the SDK does.


class ReadAhead:
    """Request body that is read here and can be read again by the SDK."""

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._messages: list[Message] = []
        self.body: bytes | None = None

    async def read(self) -> bytes | None:
        """Return the body; None if it is too large, which the SDK then refuses, or incomplete.

        Raises ServerBusy if too much is kept for the caller.
        """
        try:
            check_length(self._scope, self._limit)
        except ContentTooLarge:
            return None
        size = 0
        while True:
            message = await self._receive()
            self._messages.append(message)
            size += len(message.get("body", b""))
            if message["type"] != "http.request" or size > self._limit:
                return None
            if not message.get("more_body", False):
                self.body = b"".join([part.get("body", b"") for part in self._messages])
                return self.body
            hold(self._scope, len(message.get("body", b"")))

    async def __call__(self) -> Message:
        return self._messages.pop(0) if self._messages else await self._receive()


_CALL, _LIST = "tools/call", "tools/list"
_MODERN = "2026-07-28"
# Clients of protocol versions before 2025-06-18 name none in their headers.
_VERSIONS = frozenset({None, *(version.encode() for version in (*HANDSHAKE_PROTOCOL_VERSIONS, _MODERN))})
_ENVELOPE_KEYS = frozenset(
    {PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY}
)
# No operation reports progress, so a token for it changes nothing.
_PROGRESS_TOKEN = "progressToken"  # noqa: S105 - a key of _meta
_NO_META = b"{}"
# Headers that decide how a request is answered; a repeated one is ambiguous.
_DECISIVE_HEADERS = frozenset(
    {
        b"accept",
        b"content-type",
        b"content-length",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"mcp-method",
        b"mcp-name",
    }
)
_JSON_RANGES = frozenset({b"application/json", b"application/*", b"*/*"})
_MAX_ENVELOPES = 256
_MAX_ENVELOPE_BYTES = 4_096
_MAX_LISTS = 256
# The SDK validates each value of a message except the arguments of a tool, which takes some microseconds for each.
_MAX_MESSAGE_BYTES = 32_768
_MAX_META_BYTES = 8_192
_IDLE_PRECISION_SECONDS = 1.0
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _CallParams(Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _ListParams(Struct, forbid_unknown_fields=True):
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _Call(Struct, tag_field="method", tag=_CALL, forbid_unknown_fields=True):
    """A plain tools/call; one with further fields, such as a task, is left to the SDK."""

    jsonrpc: Literal["2.0"]
    id: int | str
    params: _CallParams


class _List(Struct, tag_field="method", tag=_LIST, forbid_unknown_fields=True):
    """A plain tools/list: the list has one page."""

    jsonrpc: Literal["2.0"]
    id: int | str
    params: _ListParams = msgspec.field(default_factory=_ListParams)


class _MessageParams(Struct):
    arguments: Raw = Raw()
    meta: Raw = msgspec.field(default=Raw(), name="_meta")


class _Message(Struct):
    """What any message may have of unbounded size."""

    params: _MessageParams = msgspec.field(default_factory=_MessageParams)


class _Text(Struct, tag_field="type", tag="text"):
    text: str | Raw


class _CallResult(Struct, rename="camel"):
    content: tuple[_Text, ...]
    structured_content: Raw
    is_error: bool
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _Answer(Struct):
    id: int | str
    result: _CallResult | Raw
    jsonrpc: Literal["2.0"] = "2.0"


class _Meta(NamedTuple):
    """The _meta of a request without what differs between requests, and its correlation ids."""

    envelope: bytes
    ids: CorrelationMeta


class _Envelope(NamedTuple):
    """Correlation ids of a stateless-era request, and whether its client can be asked for an approval."""

    ids: CorrelationMeta
    can_elicit: bool


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Call | _List).decode
_decode_message = msgspec.json.Decoder(_Message).decode
_decode_parts = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_progress_token = msgspec.json.Decoder(int | str).decode
_NO_IDS: CorrelationMeta = {}


def check_message(body: bytes) -> None:
    """Refuse a message that would take the SDK long; raises ContentTooLarge. What is no message is left to the SDK."""
    if len(body) <= _MAX_META_BYTES:
        return
    try:
        params = _decode_message(body).params
    except _UNREADABLE:
        params = _MessageParams()
    if len(params.meta) > _MAX_META_BYTES:
        raise ContentTooLarge(
            f"The _meta of a message has at most {_MAX_META_BYTES} bytes.", limit_bytes=_MAX_META_BYTES
        )
    if len(body) - len(params.arguments) > _MAX_MESSAGE_BYTES:
        raise ContentTooLarge(
            f"A message without the arguments of its tool has at most {_MAX_MESSAGE_BYTES} bytes.",
            limit_bytes=_MAX_MESSAGE_BYTES,
        )


class FastPath:
    """ASGI application in front of the SDK's session manager that answers plain calls and lists of tools itself."""

    def __init__(
        self, app: App, server: WeftlineServer, manager: StreamableHTTPSessionManager, subscriptions: Subscriptions
    ) -> None:
        self._call = ToolCalls(app)
        # A waiting call may be cancelled, which only the SDK handles.
        self._waiting = {operation.tool for operation in app.registry if operation.effect is Effect.WAIT}
        self._metrics = app.metrics
        self._manager = manager
        self._subscriptions = subscriptions
        self._sessions: dict[str, ServerSession] = {}
        # Known envelopes, and whether their client can be asked for an approval.
        self._envelopes: dict[bytes, bool] = {}
        server_info = {SERVER_INFO_META_KEY: server.server_info_stamp}
        self._server_info = Raw(_encode(server_info))
        self._lists = _ToolLists(app, server_info)
        server.middleware.append(self._remember_connection)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _plain_headers(scope) if isinstance(receive, ReadAhead) else None
        request = _parsed(receive.body) if headers is not None and isinstance(receive, ReadAhead) else None
        if headers is None or request is None or not await self._answered(request, headers, scope["user"], send):
            await self._manager.handle_request(scope, receive, send)

    async def _answered(self, request: _Call | _List, headers: Headers, user: WeftlineUser, send: Send) -> bool:
        """Answer a plain request and return True; return False for any other."""
        if isinstance(request, _Call) and self._waits(request.params):
            return False
        if headers.get(b"mcp-protocol-version") == _MODERN.encode():
            return await self._answered_modern(request, headers, user, send)
        meta = _split(request.params.meta)
        transport = self._open_connection(headers, user)
        if transport is None or meta is None or meta.envelope != _NO_META:
            return False
        session = self._sessions[transport.mcp_session_id or ""]
        client = PassedOn() if can_elicit(connection_of(session).client_capabilities) else None
        caller = user.caller.with_ids(meta.ids, request.id, transport.mcp_session_id).with_client(client)
        with _kept_alive(transport):
            # Results are the same in all versions with a handshake.
            result = await self._result(request, user, caller, LATEST_HANDSHAKE_VERSION)
            if client is not None and client.requested:
                return False
            if isinstance(request, _List):
                await self._subscriptions.watch_tools(session, user.caller, user.actor)
            await send_json(send, 200, _Answer(request.id, result), {b"mcp-session-id": headers[b"mcp-session-id"]})
        return True

    def _waits(self, params: _CallParams) -> bool:
        """Return whether a call may wait: for events, or for a server behind the gateway."""
        try:
            tool, _ = called_tool(params.name, params.arguments)
        except WeftlineError:
            return False
        return tool in self._waiting or SEPARATOR in tool

    async def _answered_modern(self, request: _Call | _List, headers: Headers, user: WeftlineUser, send: Send) -> bool:
        envelope = self._known_envelope(request.params.meta) if _is_announced(request, headers) else None
        if envelope is None:
            return False
        client = PassedOn() if envelope.can_elicit else None
        caller = user.caller.with_ids(envelope.ids, request.id, None).with_client(client)
        result = await self._result(request, user, caller, _MODERN)
        if client is not None and client.requested:
            return False
        if isinstance(result, _CallResult):
            result.result_type, result.meta = "complete", self._server_info
        await send_json(send, 200, _Answer(request.id, result))
        return True

    async def _result(
        self, request: _Call | _List, user: WeftlineUser, caller: McpCaller, version: str
    ) -> _CallResult | Raw:
        if isinstance(request, _List):
            return await self._lists.listed_for(user, version)
        self._metrics.count_tool_call("fast")
        answer = await self._call(caller, request.params.name, request.params.arguments)
        # The text of a tool result repeats its structured content, so it is encoded once.
        content = await encode_answer(answer.content)
        warnings = [_Text(shown_warning(warning)) for warning in answer.warnings]
        return _CallResult((_Text(await sliced(content.decode())), *warnings), Raw(content), answer.is_error)

    def _known_envelope(self, meta: Raw | UnsetType) -> _Envelope | None:
        """Return what a stateless-era request says about its client and call, if its envelope is plain."""
        if meta is not UNSET and (known := self._envelopes.get(bytes(meta))) is not None:
            return _Envelope(_NO_IDS, known)
        parts = _split(meta)
        elicits = None if parts is None else self._checked(parts.envelope)
        return None if parts is None or elicits is None else _Envelope(parts.ids, elicits)

    def _checked(self, envelope: bytes) -> bool | None:
        """Validate an envelope with the SDK's model, and cache it: a client sends the same with each request.

        Return whether its client can be asked for an approval; None if the envelope is not plain.
        """
        if envelope in self._envelopes:
            return self._envelopes[envelope]
        params = _plain_envelope(envelope) if len(envelope) <= _MAX_ENVELOPE_BYTES else None
        if params is None:
            return None
        if len(self._envelopes) >= _MAX_ENVELOPES:
            self._envelopes.clear()
        offered = types.ClientCapabilities.model_validate(params[CLIENT_CAPABILITIES_META_KEY])
        self._envelopes[envelope] = can_elicit(offered)
        return self._envelopes[envelope]

    def _open_connection(self, headers: Headers, user: WeftlineUser) -> StreamableHTTPServerTransport | None:
        """Return the handshake-era connection of a request if the user owns it and it is open."""
        session_id = headers.get(b"mcp-session-id", b"").decode("latin-1")
        session = self._sessions.get(session_id)
        # The SDK has no public access to these tables; its minor version is pinned for this.
        transport = self._manager._server_instances.get(session_id)  # noqa: SLF001
        if transport is None or session is None:
            return None
        owner = self._manager._session_owners.get(session_id)  # noqa: SLF001
        if owner != user.principal or not connection_of(session).initialize_accepted:
            return None
        ending = transport.is_terminated or (transport.idle_scope is not None and transport.idle_scope.cancel_called)
        return None if ending else transport

    async def _remember_connection(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Store each connection at its handshake: only the connection knows when that is complete."""
        connection = connection_of(ctx.session)
        session_id = connection.session_id
        if ctx.method == "initialize" and session_id is not None and session_id not in self._sessions:
            self._sessions[session_id] = ctx.session
            connection.exit_stack.callback(self._sessions.pop, session_id, None)
        return await call_next(ctx)


class _ToolLists:
    """Serialised tool lists: each view is serialised once for each protocol version."""

    def __init__(self, app: App, server_info: dict[str, Any]) -> None:
        self._app = app
        self._server_info = server_info
        self._serialised: dict[tuple[str, tuple[int, ...]], tuple[list[ToolView], Raw]] = {}

    async def listed_for(self, user: WeftlineUser, version: str) -> Raw:
        """Return the result of tools/list for a user."""
        caller = user.caller
        views = await self._app.listed_tools(user.actor, caller.tools, in_session=caller.session_id is not None)
        # The views are kept with their serialisation, so that their ids are not reused.
        key = (version, tuple(map(id, views)))
        known = self._serialised.get(key)
        if known is None:
            if len(self._serialised) >= _MAX_LISTS:
                self._serialised.clear()
            known = self._serialised[key] = (views, self._serialise(views, version))
        return known[1]

    def _serialise(self, views: list[ToolView], version: str) -> Raw:
        result = types.ListToolsResult(tools=[tool_model(view) for view in views])
        dumped = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        shaped = serialize_server_result(_LIST, version, dumped)
        return Raw(_encode({**shaped, "_meta": self._server_info} if version == _MODERN else shaped))


def _plain_headers(scope: Scope) -> Headers | None:
    """Return the headers of a request if they are those of a plain one."""
    given = [header for header in scope["headers"] if header[0] in _DECISIVE_HEADERS]
    headers = dict(given)
    plain = (
        scope["method"] == "POST"
        and len(headers) == len(given)
        and headers.get(b"content-type", b"").partition(b";")[0].rstrip() == b"application/json"
        and _accepts_json(headers.get(b"accept", b""))
        and headers.get(b"mcp-protocol-version") in _VERSIONS
        and headers.get(b"content-length", b"0").isdigit()
    )
    return headers if plain else None


def _accepts_json(accept: bytes) -> bool:
    return any(each.partition(b";")[0].strip().lower() in _JSON_RANGES for each in accept.split(b","))


def _is_announced(request: _Call | _List, headers: Headers) -> bool:
    """Return whether the headers of a stateless-era request match its body."""
    method, name = headers.get(b"mcp-method"), headers.get(b"mcp-name", b"").decode("latin-1")
    if isinstance(request, _List):
        return method == _LIST.encode()
    return method == _CALL.encode() and decode_header_value(name) == request.params.name


def _parsed(body: bytes | None) -> _Call | _List | None:
    try:
        return _decode(body) if body is not None else None
    except _UNREADABLE:
        return None


def _split(meta: Raw | UnsetType) -> _Meta | None:
    """Separate the reserved keys of a _meta from all others, which differ between requests; all must be readable."""
    if meta is UNSET:
        return _Meta(_NO_META, _NO_IDS)
    try:
        fields = _decode_parts(meta)
        ids = {name: _decode_text(fields[name]) for name in META_KEYS & fields.keys()}
        if _PROGRESS_TOKEN in fields:
            _decode_progress_token(fields[_PROGRESS_TOKEN])
        envelope = {name: value for name, value in fields.items() if _is_reserved(name)}
        for name in fields.keys() - envelope.keys():
            msgspec.json.decode(fields[name])
    except _UNREADABLE:
        return None
    return _Meta(bytes(meta) if len(envelope) == len(fields) else _encode(envelope), ids)


def _is_reserved(name: str) -> bool:
    """Return whether a key of _meta may have a meaning in the protocol: those of vendors have none here."""
    return "modelcontextprotocol" in name or "mcp" in name


def _plain_envelope(envelope: bytes) -> dict[str, Any] | None:
    try:
        meta = msgspec.json.decode(envelope, type=dict[str, Any])
        validate_client_request(_CALL, _MODERN, {"name": "", "_meta": meta})
    except (*_UNREADABLE, ValidationError):
        return None
    return meta if meta[PROTOCOL_VERSION_META_KEY] == _MODERN and meta.keys() <= _ENVELOPE_KEYS else None


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
