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
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
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
QUESTION = "Which color?"
_FORM: Any = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
_ECHO = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def described() -> dict[str, str]:
    path = os.environ.get("UPSTREAM_TOOLS")
    if path is None or not Path(path).exists():
        return TOOLS
    said: dict[str, str] = json.loads(Path(path).read_text())
    return said


async def list_tools(_: Any, params: Any) -> types.ListToolsResult:
    del params
    return _listed(described())


def _listed(tools: dict[str, str]) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=name,
                description=text,
                input_schema=_ECHO if name == "echo" else {"type": "object", "properties": {}},
                annotations=types.ToolAnnotations(read_only_hint=name in {"echo", "count"}),
            )
            for name, text in tools.items()
        ]
    )


async def call_tool(
    context: Any, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    match params.name:
        case "echo":
            return _text((params.arguments or {})["text"])
        case "ask" | "think" | "slow":
            return await _with_client(context, params)
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


async def _with_client(
    context: Any, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Ask the user, or the model, of the client; or tell it of the progress."""
    if params.name == "slow":
        for done in (1, 2):
            await context.session.report_progress(done, 2, f"part {done}")
        return _text("done")
    question = (params.arguments or {}).get("question", QUESTION)
    message = types.SamplingMessage(role="user", content=types.TextContent(text=question))
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        given = (params.input_responses or {}).get("input")
        if given is None:
            asked: Any = types.ElicitRequest(
                params=types.ElicitRequestFormParams(message=question, requested_schema=_FORM)
            )
            if params.name == "think":
                asked = types.CreateMessageRequest(
                    params=types.CreateMessageRequestParams(messages=[message], max_tokens=9)
                )
            return types.InputRequiredResult(input_requests={"input": asked}, request_state="asked")
    elif params.name == "ask":
        given = await context.session.elicit_form(question, _FORM, related_request_id=context.request_id)
    else:
        given = await context.session.create_message([message], max_tokens=9, related_request_id=context.request_id)
    if isinstance(given, types.ElicitResult):
        return _text(f"{given.action}: {(given.content or {}).get('color')}")
    return _text(given.content.text)


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


def build(tools: dict[str, str] | None = None) -> Server[Any]:
    async def list_these(_: Any, params: Any) -> types.ListToolsResult:
        return _listed(tools) if tools is not None else await list_tools(_, params)

    return Server("upstream", on_list_tools=list_these, on_call_tool=call_tool, on_list_resources=list_resources)


async def _over_stdio() -> None:
    server = build()
    async with stdio_server() as (read, write):
        options = server.create_initialization_options()
        if "UPSTREAM_LEGACY" not in os.environ:
            await server.run(read, write, options)
            return
        async with server.lifespan(server) as state:
            await serve_loop(server, read, write, lifespan_state=state, init_options=options)


def http_app(tools: dict[str, str] | None = None) -> Any:
    """Return the server as an ASGI application."""
    manager = StreamableHTTPSessionManager(build(tools))

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
