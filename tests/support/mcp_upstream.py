"""An MCP server of others, for the gateway: over stdio, or over HTTP with a port as its argument.

It reads the descriptions of its tools from the file that UPSTREAM_TOOLS names, so that a test changes what it says.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOOLS: dict[str, str] = {
    "echo": "Return a text as it is",
    "variables": "Return the names and values of variables of the environment",
    "fail": "Answer with an error",
    "leave": "End the program without an answer",
    "wait": "Wait until the call is cancelled, and note that in the file UPSTREAM_NOTES",
    "headers": "Return the Authorization header of the request",
}
# Lines of a log, with one that nobody would look for without its number.
LONG = [f"12:00:{number % 60:02} order {number} was served from shelf {number % 90}" for number in range(2_000)]
_CALLS: list[int] = []
_ECHO = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def described() -> dict[str, str]:
    path = os.environ.get("UPSTREAM_TOOLS")
    if path is None or not Path(path).exists():
        return TOOLS
    said: dict[str, str] = json.loads(Path(path).read_text())
    return said


async def list_tools(_: Any, params: Any) -> types.ListToolsResult:
    del params
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=name,
                description=text,
                input_schema=_ECHO if name == "echo" else {"type": "object", "properties": {}},
                annotations=types.ToolAnnotations(read_only_hint=name in {"echo", "count"}),
            )
            for name, text in described().items()
        ]
    )


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    match params.name:
        case "echo":
            return _text((params.arguments or {})["text"])
        case "long" | "large" | "count":
            return _answer(params.name)
        case "variables":
            return _text(json.dumps({name: value for name, value in os.environ.items() if name.startswith("GIVEN")}))
        case "leave":
            os._exit(3)
        case "wait":
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                Path(os.environ["UPSTREAM_NOTES"]).write_text("cancelled")  # noqa: ASYNC240 - nothing else runs here
                raise
        case "headers":
            return _text(context.request.headers.get("authorization", ""))
    return types.CallToolResult(content=[types.TextContent(text="it failed")], is_error=True)


def _answer(name: str) -> types.CallToolResult:
    if name == "count":
        _CALLS.append(1)
        return _text(str(len(_CALLS)))
    text = "\n".join(LONG) if name == "long" else "x" * (17 * 2**20)
    return types.CallToolResult(content=[types.TextContent(text=text)])


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content={"text": text})


async def list_resources(_: Any, params: Any) -> types.ListResourcesResult:
    del params
    return types.ListResourcesResult(resources=[types.Resource(uri="notes://plan", name="plan")])


def build() -> Server[Any]:
    return Server("upstream", on_list_tools=list_tools, on_call_tool=call_tool, on_list_resources=list_resources)


async def _over_stdio() -> None:
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def http_app() -> Any:
    """Return the server as an ASGI application."""
    manager = StreamableHTTPSessionManager(build())

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvicorn.run(http_app(), port=int(sys.argv[1]), log_level="error")
    else:
        asyncio.run(_over_stdio())
