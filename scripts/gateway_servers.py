"""The gateway in front of real MCP servers: three from the registry, and the one that the conformance suite tests.

Each call is made at the server and through Weftline, by a client of each protocol version; both have to get the same
content, the same progress, and be asked the same. Part of make conformance.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import warnings
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning

from weftline.testing.server import server_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node_js import Node

    from weftline.testing.server import ServerProcess

ROOT = Path(__file__).resolve().parent.parent
ERAS = ("legacy", "2026-07-28")
_SUITE = "suite"
_KEY = "the-key-of-the-signatures"
# Calls of each server, by tool; {folder} is one that it may write to.
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "everything": [
        ("echo", {"message": "hello"}),
        ("get-sum", {"a": 2, "b": 40}),
        ("get-structured-content", {"location": "New York"}),
        ("get-tiny-image", {}),
        ("get-annotated-message", {"messageType": "error"}),
        ("trigger-long-running-operation", {"duration": 1, "steps": 2}),
    ],
    "filesystem": [
        ("write_file", {"path": "{folder}/note.txt", "content": "one\ntwo"}),
        ("read_text_file", {"path": "{folder}/note.txt", "head": 1}),
        ("list_directory", {"path": "{folder}"}),
        ("read_text_file", {"path": "/etc/hostname"}),
    ],
    "memory": [
        ("create_entities", {"entities": [{"name": "Ada", "entityType": "person", "observations": ["writes notes"]}]}),
        ("search_nodes", {"query": "notes"}),
        ("delete_entities", {"entityNames": ["Ada"]}),
        ("read_graph", {}),
    ],
    _SUITE: [
        (f"test_{name}", arguments)
        for name, arguments in {
            "simple_text": {},
            "image_content": {},
            "audio_content": {},
            "embedded_resource": {},
            "multiple_content_types": {},
            "error_handling": {},
            "tool_with_progress": {},
            "input_required_result_elicitation": {},
            "input_required_result_sampling": {},
        }.items()
    ],
}


@dataclass(slots=True)
class GatewayResult:
    """Calls of a server through the gateway, by protocol version of the client, and those with another outcome."""

    server: str
    protocol: str
    tools: int
    calls: int
    different: list[str]

    @property
    def good(self) -> bool:
        return bool(self.tools) and self.calls == len(CALLS[self.server]) and not self.different


def try_gateway(node: Node, packages: Path) -> list[GatewayResult]:
    """Return the results of every server and version."""
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    # It tells of each tool that is called and was not listed.
    logging.getLogger("client").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as data, _servers(Path(data)) as (front, suite):
        return asyncio.run(_try(front, suite, _commands(node, packages, Path(data)), Path(data)))


@contextmanager
def _servers(data: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    for name in ("front", "suite", "files"):
        (data / name).mkdir()
    settings = {"gateway_commands": "on", "gateway_private_hosts": "127.0.0.1", "signing_secret": _KEY}
    with (
        server_process(data / "front", rate_limits="off", **settings) as front,
        server_process(data / "suite", profile=ROOT / "conformance" / "fixtures.py", rate_limits="off") as suite,
    ):
        yield front, suite


def _commands(node: Node, packages: Path, data: Path) -> dict[str, StdioServerParameters]:
    folder = packages / "servers" / "node_modules" / "@modelcontextprotocol"
    given = {"filesystem": [str(data / "files")]}
    return {
        name: StdioServerParameters(
            command=node.node,
            args=[str(folder / f"server-{name}" / "dist" / "index.js"), *given.get(name, [])],
            env={"MEMORY_FILE_PATH": str(data / "memory.jsonl")} if name == "memory" else {},
        )
        for name in ("everything", "filesystem", "memory")
    }


async def _try(
    front: ServerProcess, suite: ServerProcess, commands: dict[str, StdioServerParameters], data: Path
) -> list[GatewayResult]:
    headers = {"Authorization": f"Bearer {front.admin_key}"}
    async with httpx2.AsyncClient(base_url=front.url, headers=headers, timeout=120) as admin:
        bodies: list[dict[str, Any]] = [
            {"name": name, "command": " ".join([command.command, *command.args]), "variables": command.env or {}}
            for name, command in commands.items()
        ]
        key = {"Authorization": f"Bearer {suite.admin_key}"}
        bodies.append({"name": _SUITE, "url": suite.mcp_url, "variables": key})
        approved = {}
        for body in bodies:
            added = (await admin.post("/v1/gateway/servers", json=body)).raise_for_status().json()
            approved[body["name"]] = added["approved"]
    return [
        await _compare(name, era, front, commands.get(name, suite), data, approved[name])
        for era in ERAS
        for name in CALLS
    ]


async def _compare(
    name: str,
    era: str,
    front: ServerProcess,
    direct: ServerProcess | StdioServerParameters,
    data: Path,
    tools: int,
) -> GatewayResult:
    async with AsyncExitStack() as stack:
        through = await _connect(stack, front, era)
        if isinstance(direct, StdioServerParameters):
            mine = await stack.enter_async_context(
                Client(direct, elicitation_callback=_elicit, sampling_callback=_sample)
            )
        else:
            # As the gateway does.
            mine = await _connect(stack, direct, "auto")
        calls = [(tool, {key: _filled(value, data) for key, value in given.items()}) for tool, given in CALLS[name]]
        expected = [await _outcome(mine, tool, given) for tool, given in calls]
        found = [await _outcome(through, f"{name}__{tool}", given) for tool, given in calls]
        different = [
            f"{tool}: {ours} is not {theirs}"
            for (tool, _), ours, theirs in zip(calls, found, expected, strict=True)
            if ours != theirs
        ]
        return GatewayResult(name, through.protocol_version, tools, len(calls), different)


async def _connect(stack: AsyncExitStack, server: ServerProcess, era: str) -> Client:
    headers = {"Authorization": f"Bearer {server.admin_key}"}
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=120))
    client = Client(
        streamable_http_client(server.mcp_url, http_client=http),
        mode=era,
        elicitation_callback=_elicit,
        sampling_callback=_sample,
    )
    return await stack.enter_async_context(client)


async def _outcome(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    result = await client.call_tool(tool, arguments, progress_callback=note)
    shown = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: shown.get(name) for name in ("content", "structuredContent", "isError")} | {"progress": seen}


async def _elicit(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": params.message})


async def _sample(_: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    text = types.TextContent(text=f"{len(params.messages)} messages")
    return types.CreateMessageResult(role="assistant", content=text, model="scripted")


def _filled(value: Any, data: Path) -> Any:  # noqa: ANN401 - JSON
    return value.replace("{folder}", str(data / "files")) if isinstance(value, str) else value
