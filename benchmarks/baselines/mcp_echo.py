"""The official SDK's low-level server with one echo tool and bearer authentication.

Like Weftline it disables the SDK's tracing and the tool list before each call of the stateless era, so that the ratio
shows the cost that Weftline adds. ``--defaults`` keeps both.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from benchmarks.baselines.uvicorn_server import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server.context import ServerRequestContext
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

_TOOL = types.Tool(name="shared_context", description="Echo.", input_schema={"type": "object"})


async def list_tools(context: ServerRequestContext[Any, Any], params: object) -> types.ListToolsResult:
    del context, params
    return types.ListToolsResult(tools=[_TOOL])


async def call_tool(
    context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    del context
    return types.CallToolResult(content=[types.TextContent(text=(params.arguments or {})["value"])])


class Endpoint:
    """Authenticates one token."""

    def __init__(self, token: str, manager: StreamableHTTPSessionManager) -> None:
        self._principals = {token: "benchmark"}
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = header.decode("latin-1").partition(" ")
        principal = self._principals.get(token)
        if scheme.lower() != "bearer" or principal is None:
            await PlainTextResponse("no", 401)(scope, receive, send)
            return
        access = AccessToken(token="", client_id="default", subject=principal, scopes=["read", "write"])
        scope["user"] = AuthenticatedUser(access)
        await self._manager.handle_request(scope, receive, send)


async def ready(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ready")


def main(token: str, *, defaults: bool) -> None:
    server: Server[Any] = Server(
        "echo",
        version="1",
        get_tool_input_schema=None if defaults else lambda _: None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    if not defaults:
        server.middleware.clear()
    manager = StreamableHTTPSessionManager(server, json_response=True)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    serve(Starlette(lifespan=lifespan, routes=[Route("/mcp", Endpoint(token, manager)), Route("/", ready)]))


if __name__ == "__main__":
    main(sys.argv[1], defaults="--defaults" in sys.argv)
