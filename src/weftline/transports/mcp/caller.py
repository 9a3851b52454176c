"""Caller of an MCP message, and the tool calls it makes."""

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

from weftline.app.dispatch import CallContext
from weftline.kernel.client_gone import ClientGone
from weftline.kernel.correlation import NO_CORRELATION, TRACEPARENT, ids_from_meta, is_native_id, is_sampled, with_ids
from weftline.kernel.errors import NotFound, WeftlineError, render_hint
from weftline.kernel.fields import MAX_INT
from weftline.kernel.guards import collected_warnings
from weftline.transports.http.http_io import error_body
from weftline.transports.references import tool_reference

if TYPE_CHECKING:
    import msgspec
    from mcp.server.connection import Connection
    from mcp.server.session import ServerSession

    from weftline.app.app import App
    from weftline.app.held_calls import ClientApprover
    from weftline.kernel.identity import Actor

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("weftline.mcp")
_RESOURCE_NOT_FOUND = -32002


@dataclass(frozen=True, slots=True)
class McpCaller:
    """Call context of a message, and the tool profile of its endpoint, if any."""

    call_context: CallContext
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

    @property
    def session_id(self) -> str | None:
        """Return the session that the connection is bound to."""
        return self.call_context.session_id

    def with_client(self, client: ClientApprover | None) -> McpCaller:
        """Return the caller with what asks its user for an approval."""
        return self if client is None else replace(self, call_context=structs.replace(self.call_context, client=client))


@dataclass(frozen=True, slots=True)
class ServerState:
    """Lifespan state of the server: over stdio, its only caller."""

    local: McpCaller | None


Context = ServerRequestContext[ServerState, Any]


class WeftlineUser(AuthenticatedUser):
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
                claims={"iss": "weftline"},
            )
        )
        self.actor = actor
        self.caller = caller
        self.principal = authorization_context(self)

    def for_message(self, caller: McpCaller) -> WeftlineUser:
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
        if isinstance(user, WeftlineUser):
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
    """Translate WeftlineError into MCPError, and hide the text of unexpected exceptions, which the SDK would return."""

    @wraps(handler)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await handler(*args, **kwargs)
        except (MCPError, ClientGone):
            raise
        except WeftlineError as error:
            raise _protocol_error(error, args) from error
        except Exception as error:
            _log.exception("handler failed")
            raise MCPError(types.INTERNAL_ERROR, "Internal error") from error

    return run


def _protocol_error(error: WeftlineError, args: tuple[object, ...]) -> MCPError:
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
    """Calls the operation of a tool call."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, caller: McpCaller, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        try:
            operation, raw = await self._app.resolve_tool(name, arguments, caller.call_context)
            with collected_warnings() as warnings:
                response = await self._app.call(operation, raw, caller.call_context)
        except WeftlineError as error:
            return ToolAnswer(error_body(error, self._app.clock, tool_reference), is_error=True)
        return ToolAnswer(response, is_error=False, warnings=warnings)
