"""Caller of an MCP message, the session its connection is bound to, and the tool calls it makes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeGuard, TypeVar

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import structs

from weft.app.dispatch import CallContext
from weft.app.tools.toolbox import LINE_FIELDS, works_in_session
from weft.capabilities.history.line_kinds import SESSION, line_kinds, name_in
from weft.capabilities.sessions.model import ALL_SESSIONS, SessionNotFound
from weft.kernel.call_warnings import collected_warnings
from weft.kernel.correlation import NO_CORRELATION, TRACEPARENT, ids_from_meta, is_native_id, is_sampled, with_ids
from weft.kernel.errors import NotFound, WeftError, render_hint
from weft.kernel.fields import MAX_INT
from weft.kernel.operation import SessionUse
from weft.transports.http.http_io import error_body
from weft.transports.references import tool_reference
from weft.transports.resources import INBOX, Resource, inbox_of, parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec
    from mcp.server.connection import Connection
    from mcp.server.session import ServerSession

    from weft.app.app import App
    from weft.app.held_calls import ClientApprover
    from weft.kernel.identity import Actor

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("weft.mcp")
_RESOURCE_NOT_FOUND = -32002


@dataclass(frozen=True, slots=True)
class McpCaller:
    """Call context of a message, the session its endpoint is bound to, and the endpoint's tool profile, if any."""

    call_context: CallContext
    session_id: str | None = None
    tools: str | None = None

    def with_ids(self, meta: Mapping[str, Any], request_id: object, connection_id: str | None) -> McpCaller:
        """Return the caller with the correlation ids of one request."""
        ids: dict[str, str | int] = {**ids_from_meta(meta)}
        known = self.call_context.correlation
        if not ids and known is NO_CORRELATION and not _is_id(connection_id):
            # The id of a request identifies nothing without its connection.
            return self
        native = {"jsonrpc_request_id": request_id, "mcp_session_id": connection_id}
        ids |= {name: value for name, value in native.items() if _is_id(value)}
        sampled = is_sampled(meta[TRACEPARENT]) if TRACEPARENT in meta else self.call_context.sampled
        return replace(
            self, call_context=structs.replace(self.call_context, correlation=with_ids(known, ids), sampled=sampled)
        )

    def with_client(self, client: ClientApprover | None) -> McpCaller:
        """Return the caller with what asks its user for an approval."""
        return self if client is None else replace(self, call_context=structs.replace(self.call_context, client=client))

    def check(self, session_id: object, **context: Any) -> None:  # noqa: ANN401 - JSON
        """Refuse sessions other than the one this connection is bound to, as if they did not exist."""
        if self.session_id not in (None, session_id):
            named = str(session_id)[:100]
            message = f"There is no session '{named}' here: this connection works in '{self.session_id}' only."
            raise SessionNotFound(message, resource_type="session", resource_id=named, **context)

    def bound(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request with the session the connection is bound to."""
        if self.session_id is None:
            return raw
        self.check(raw.get("session_id") or self.session_id)
        return {**raw, "session_id": self.session_id}

    def with_contexts(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request in which ``board`` means the board of the session the connection is bound to."""
        if self.session_id is None:
            return raw
        return {**raw, **{name: self._context_id(raw[name]) for name in LINE_FIELDS if isinstance(raw.get(name), str)}}

    def _context_id(self, named: str) -> str:
        line, mark, branch = named.partition("@")
        kind = line_kinds().get(line)
        if kind is not None and kind.of_session:
            return f"{line}:{self.session_id}{mark}{branch}"
        session_id = name_in(line, SESSION)
        if session_id is not None:
            self.check(session_id)
        return named

    def resource(self, uri: str) -> Resource:
        """Return the resource of a URI if this connection can reach it."""
        resource = parse_uri(uri)
        if uri == INBOX.uri:
            return inbox_of(uri, self.session_id)
        if resource.session_id is not None:
            self.check(resource.session_id, uri=uri)
        return resource


@dataclass(frozen=True, slots=True)
class ServerState:
    """Lifespan state of the server: over stdio, its only caller."""

    local: McpCaller | None


Context = ServerRequestContext[ServerState, Any]


class WeftUser(AuthenticatedUser):
    """User that the SDK binds a connection to, so that no other user can continue it.

    It must be a subclass of the SDK's class: for any other class the session manager compares nothing.
    """

    def __init__(self, actor: Actor, caller: McpCaller) -> None:
        super().__init__(
            AccessToken(
                token="",
                client_id=actor.tenant,
                subject=actor.principal_id,
                scopes=sorted(actor.permissions),
                claims={"iss": "weft"},
            )
        )
        self.actor = actor
        self.caller = caller
        self.principal = authorization_context(self)

    def for_message(self, caller: McpCaller) -> WeftUser:
        """Return the same user as the caller of one message."""
        user = copy(self)
        user.caller = caller
        return user


def _is_id(value: object) -> TypeGuard[str | int]:
    """Return whether a value is a storable id: text, or the number of a JSON-RPC request."""
    return is_native_id(value) if isinstance(value, str) else isinstance(value, int) and abs(value) <= MAX_INT


def caller_of(context: Context) -> McpCaller:
    """Return the caller of a message; over HTTP each message has its own credential."""
    if context.request is not None:
        user = context.request.scope.get("user")
        if isinstance(user, WeftUser):
            return user.caller
    else:
        local = context.lifespan_context.local
        if local is not None:
            return local
    raise MCPError(types.INVALID_REQUEST, "Not authenticated")


def caller_of_call(context: Context) -> McpCaller:
    """Return the caller of a tool call, with its correlation ids."""
    caller, meta = caller_of(context), context.meta or {}
    return caller.with_ids(meta, context.request_id, connection_of(context.session).session_id)


def connection_of(session: ServerSession) -> Connection:
    # The SDK has no public access to a connection's state; its minor version is pinned for this.
    return session._connection  # noqa: SLF001


def is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def answering(handler: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Translate WeftError into MCPError, and hide the text of unexpected exceptions, which the SDK would return."""

    @wraps(handler)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await handler(*args, **kwargs)
        except MCPError:
            raise
        except WeftError as error:
            raise _protocol_error(error, args) from error
        except Exception as error:
            _log.exception("handler failed")
            raise MCPError(types.INTERNAL_ERROR, "Internal error") from error

    return run


def _protocol_error(error: WeftError, args: tuple[object, ...]) -> MCPError:
    context = next((argument for argument in args if isinstance(argument, ServerRequestContext)), None)
    modern = context is not None and is_modern(context)
    code = _RESOURCE_NOT_FOUND if isinstance(error, NotFound) and not modern else types.INVALID_PARAMS
    return MCPError(
        code,
        error.message,
        {"code": error.code, "hint": render_hint(error.hint_template, tool_reference), **error.context},
    )


class ToolAnswer(NamedTuple):
    """Result of a tool call, or an error that a model can act on; with warnings about the call."""

    content: msgspec.Struct
    is_error: bool
    warnings: Sequence[str] = ()


class ToolCalls:
    """Calls the operation of a tool call, in the session its connection is bound to."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, caller: McpCaller, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        try:
            operation, raw = await self._app.resolve_tool(name, arguments, caller.call_context)
            if works_in_session(operation):
                raw = caller.bound(raw)
            elif operation.session is SessionUse.MAY_NAME and raw.get("session_id") not in (None, ALL_SESSIONS):
                caller.check(raw["session_id"])
            with collected_warnings() as warnings:
                response = await self._app.call(operation, caller.with_contexts(raw), caller.call_context)
        except WeftError as error:
            return ToolAnswer(error_body(error, self._app.clock, tool_reference), is_error=True)
        return ToolAnswer(response, is_error=False, warnings=warnings)
