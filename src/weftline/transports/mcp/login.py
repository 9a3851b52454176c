"""MCP for clients without a credential: they connect, and list and call authenticate_agent only.

Nothing is kept between their messages, so that connecting without a credential costs the server no memory.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from weftline import __version__
from weftline.kernel.errors import AuthenticationError, MethodNotAllowed, WeftlineError
from weftline.transports.http.http_io import ANONYMOUS_BODY_BYTES, context_of, error_body, refuse
from weftline.transports.mcp.caller import answering
from weftline.transports.mcp.fast_path import ReadAhead
from weftline.transports.mcp.server import tool_model, tool_result
from weftline.transports.references import tool_reference

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server.context import ServerRequestContext
    from starlette.types import Receive, Scope, Send

    from weftline.app.app import App

    Context = ServerRequestContext[None, Any]

_INSTRUCTIONS = (
    "You have sent no credential, so only authenticate_agent can be called: it exchanges your API key for a token. "
    "Then connect again with the header 'Authorization: Bearer <token>'. With the API key itself in this header you "
    "need no token."
)
_METHODS = frozenset({"initialize", "notifications/initialized", "server/discover", "ping", "tools/list", "tools/call"})


class _Message(msgspec.Struct):
    method: str


_decode = msgspec.json.Decoder(_Message).decode


class LoginEndpoint:
    """Answers messages without a credential, limited by address; refuses what needs one."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._manager = StreamableHTTPSessionManager(
            _build_server(app), json_response=True, stateless=True, max_request_body_size=ANONYMOUS_BODY_BYTES
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = ReadAhead(scope, receive, ANONYMOUS_BODY_BYTES)
        try:
            context = context_of(scope)
            await self._app.admit_without_credential(context)
            if scope["method"] != "POST":
                # The protocol's answer where there is no stream to open; clients go on without one.
                raise MethodNotAllowed("Without a credential there is no event stream.")
            if _method(await body.read()) not in _METHODS:
                # Refuses the caller, and audits that.
                await self._app.identify(context)
                raise AuthenticationError
        except WeftlineError as error:
            await refuse(scope, send, error, self._app.clock, tool_reference)
            return
        await self._manager.handle_request(scope, body, send)


def _method(body: bytes | None) -> str | None:
    try:
        return _decode(body).method if body is not None else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _build_server(app: App) -> Server[None]:
    views = app.toolbox.listed_without_credential()
    operations = {operation.tool: operation for operation in app.registry if operation.tool in {v.name for v in views}}

    @answering
    async def list_tools(context: Context, params: object) -> types.ListToolsResult:
        del context, params
        return types.ListToolsResult(tools=[tool_model(view) for view in views])

    @answering
    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        assert context.request is not None  # noqa: S101 - over HTTP
        caller, operation = context_of(context.request.scope), operations.get(params.name)
        try:
            if operation is None:
                # Refuses the caller, and audits that.
                await app.identify(caller)
                raise AuthenticationError
            answer: msgspec.Struct = await app.call(operation, params.arguments or {}, caller)
        except WeftlineError as error:
            return tool_result(error_body(error, app.clock, tool_reference), is_error=True)
        return tool_result(answer, is_error=False)

    @asynccontextmanager
    async def lifespan(_: Server[None]) -> AsyncIterator[None]:
        yield

    server = Server(
        "weftline",
        version=__version__,
        instructions=_INSTRUCTIONS,
        lifespan=lifespan,
        get_tool_input_schema=lambda _: None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    # The dispatcher traces every call already.
    server.middleware.clear()
    return server
