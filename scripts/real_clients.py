"""Real MCP clients against a real server: list tools, write and read the board, get notified of another write.

Then they list and call the tools of a step at its endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

SESSION = "clients"
METRICS_TOKEN = "the-token-of-the-clients"
# A step with one action of one tool.
STEP, STEP_TOOLS = "reading", ("shared_context.read",)
_ERAS = ("legacy", "auto", "2026-07-28")
_WATCHED = f"board://{SESSION}/watched"
_VALUE = "from Python"
_TIMEOUT_SECONDS = 60
_WRITE_INTERVAL_SECONDS = 0.2
_INSPECTOR = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"


@dataclass(frozen=True, slots=True)
class ClientResult:
    """Results of one client."""

    client: str
    protocol: str = "-"
    tools: int = 0
    wrote: bool = False
    read: bool = False
    updated: str = "no"
    step: bool = False
    slow_calls: int = 0
    problem: str = ""

    @property
    def good(self) -> bool:
        works = self.tools > 0 and self.wrote and self.read and self.updated != "no" and self.step and not self.problem
        return works and not self.slow_calls


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """The server, the agents' keys, and where node and its packages are."""

    url: str
    key: str
    other_key: str
    node: str
    packages: Path

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


async def try_clients(setup: ClientSetup) -> list[ClientResult]:
    """Run every client once, one after the other."""
    attempts: dict[str, Callable[[], Awaitable[ClientResult]]] = {
        **{f"Python SDK, {era}": _python(setup, era) for era in _ERAS},
        "TypeScript sdk 1.x": _typescript(setup, "sdk", ""),
        **{f"TypeScript client 2.x, {era}": _typescript(setup, "client", era) for era in _ERAS},
        "Inspector": lambda: _inspector(setup),
    }
    return [await _attempt(setup, name, attempt) for name, attempt in attempts.items()]


async def _attempt(setup: ClientSetup, name: str, attempt: Callable[[], Awaitable[ClientResult]]) -> ClientResult:
    before = _slow_calls(setup)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            seen = await attempt()
    except Exception as error:  # noqa: BLE001 - any failure of a client is a result
        return ClientResult(name, problem=f"{type(error).__name__}: {error}"[:300])
    return replace(seen, client=name, slow_calls=_slow_calls(setup) - before)


def _slow_calls(setup: ClientSetup) -> int:
    """Return the number of tool calls that did not take the fast path."""
    metrics = httpx2.get(f"{setup.url}/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    shown = re.search(r'^weftline_tool_calls_total\{path="sdk"\} (\d+)', metrics.raise_for_status().text, re.MULTILINE)
    return int(shown[1]) if shown else 0


def _python(setup: ClientSetup, era: str) -> Callable[[], Awaitable[ClientResult]]:
    async def work() -> ClientResult:
        updated_event = asyncio.Event()

        async def on_message(message: object) -> None:
            if type(message).__name__ == "ResourceUpdatedNotification":
                updated_event.set()

        async with httpx2.AsyncClient(headers=setup.headers, timeout=30) as http:
            transport = streamable_http_client(f"{setup.url}/mcp", http_client=http)
            async with Client(transport, mode=era, message_handler=on_message) as client:
                tools = (await client.list_tools()).tools
                written = await _board(client, action="write", key="by_python", value=_VALUE)
                read = await _board(client, action="read", key="by_python")
                updated = await _watch(setup, client, updated_event)
                version = client.protocol_version
            transport = streamable_http_client(f"{setup.url}/mcp/step/{STEP}", http_client=http)
            async with Client(transport, mode=era) as client:
                step = {
                    "tools": [tool.name for tool in (await client.list_tools()).tools],
                    "read": (await _board(client, action="read", key="by_python"))["value"],
                    "refused": (await _board(client, action="write", key="by_python", value="x")).get("code"),
                }
        return ClientResult(
            era, version, len(tools), "version" in written, read["value"] == _VALUE, updated, _is_in_step(step, _VALUE)
        )

    return work


async def _board(client: Client, **arguments: str) -> dict[str, Any]:
    result = await client.call_tool("shared_context", {"session_id": SESSION, **arguments})
    return result.structured_content or {}


async def _watch(setup: ClientSetup, client: Client, updated_event: asyncio.Event) -> str:
    if client.protocol_version == "2026-07-28":
        async with client.listen(resource_subscriptions=[_WATCHED]) as subscription, _writing(setup):
            return str((await anext(subscription)).uri)
    with warnings.catch_warnings():
        # Removed from the newer protocol version; clients of the older one use it.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        await client.subscribe_resource(_WATCHED)
    async with _writing(setup):
        await updated_event.wait()
    return _WATCHED


def _typescript(setup: ClientSetup, kind: str, era: str) -> Callable[[], Awaitable[ClientResult]]:
    async def work() -> ClientResult:
        environment = {
            "CLIENT": kind,
            "ERA": era,
            "WEFTLINE_URL": f"{setup.url}/mcp",
            "WEFTLINE_API_KEY": setup.key,
            "SESSION": SESSION,
            "STEP": STEP,
        }
        process = await _start(setup, setup.packages / "suite", environment, "client.mjs")
        assert process.stdout is not None
        first = await process.stdout.readline()
        if not first:
            raise RuntimeError(await _error_output(process))
        async with _writing(setup):
            seen = json.loads(await process.stdout.readline() or "{}")
        if await process.wait() or not seen:
            raise RuntimeError(await _error_output(process))
        read = seen["read"] == "from TypeScript"
        step = _is_in_step(seen["step"], "from TypeScript")
        return ClientResult(kind, seen["protocol"], seen["tools"], seen["written"] > 0, read, seen["updated"], step)

    return work


def _is_in_step(seen: dict[str, Any], value: str) -> bool:
    """Return whether a client saw and reached the tools of the step, and no others."""
    return seen == {"tools": ["shared_context"], "read": value, "refused": "TOOL_NOT_IN_STEP"}


async def _inspector(setup: ClientSetup) -> ClientResult:
    """Run one command per request. The command line of the inspector cannot subscribe, so it reads the resource."""
    tools = (await _inspect(setup, "tools/list", "--strict"))["tools"]
    call = ("--tool-name", "shared_context", "--tool-arg", f"session_id={SESSION}", "key=by_inspector")
    written = await _inspect(setup, "tools/call", *call, "action=write", f"value={_VALUE}")
    read = await _inspect(setup, "tools/call", *call, "action=read")
    resource = await _inspect(setup, "resources/read", "--uri", f"board://{SESSION}/by_inspector")
    values = [read["structuredContent"]["value"], json.loads(resource["contents"][0]["text"])["value"]]
    is_written, is_read = "version" in written["structuredContent"], values == [_VALUE, _VALUE]
    listed = (await _inspect(setup, "tools/list", path=f"/mcp/step/{STEP}"))["tools"]
    in_step = [tool["name"] for tool in listed] == ["shared_context"]
    return ClientResult("", "-", len(tools), is_written, is_read, "cannot subscribe", in_step)


async def _inspect(setup: ClientSetup, method: str, *arguments: str, path: str = "/mcp") -> Any:  # noqa: ANN401 - a result of any method
    header = f"Authorization: Bearer {setup.key}"
    command = [
        _INSPECTOR,
        "--cli",
        f"{setup.url}{path}",
        "--transport",
        "http",
        "--method",
        method,
        *arguments,
        "--header",
        header,
    ]
    process = await _start(setup, setup.packages / "inspector", {}, *command)
    out, err = await process.communicate()
    if process.returncode:
        raise RuntimeError((err or out).decode()[-300:])
    return json.loads(out)


async def _start(
    setup: ClientSetup, folder: Path, environment: dict[str, str], *command: str
) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    environment = {**os.environ, **environment, "HOME": str(folder)}
    return await asyncio.create_subprocess_exec(
        setup.node, *command, cwd=folder, env=environment, stdout=pipe, stderr=pipe
    )


async def _error_output(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    return (await process.stderr.read()).decode()[-300:]


@contextlib.asynccontextmanager
async def _writing(setup: ClientSetup) -> AsyncIterator[None]:
    """Write the watched key repeatedly as another agent: a client may open its stream late."""
    task = asyncio.create_task(_write_repeatedly(setup))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _write_repeatedly(setup: ClientSetup) -> None:
    headers = {"Authorization": f"Bearer {setup.other_key}"}
    async with httpx2.AsyncClient(base_url=setup.url, headers=headers) as http:
        while True:
            answer = await http.put(f"/v1/sessions/{SESSION}/context/watched", json={"value": "changed"})
            answer.raise_for_status()
            await asyncio.sleep(_WRITE_INTERVAL_SECONDS)
