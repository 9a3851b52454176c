"""Both servers measured with real MCP clients as they come: the official Python client, and FastMCP."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.environments import Environment, NotInstallable
from benchmarks.peer_load import OPERATIONS, cpu_with_children, settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from benchmarks.peer_load import Party

_PROGRAM = Path(__file__).with_name("baselines") / "mcp_client.py"
_FASTMCP = Environment("fastmcp")
_LINE_BYTES = 2**20
_MILLIS = 1_000
_TURNS_OF_CLIENT = {"official": 0, "fastmcp": 120}


@dataclass(frozen=True, slots=True)
class Load:
    """Operations to measure. ``first_turn`` differs, so that no call repeats one of another load.

    With ``schemas``, the client validates answers as if the server listed output schemas.
    """

    operations: tuple[str, ...]
    first_turn: int
    schemas: bool = False


LISTED = Load(("add_message", "get_messages", "search_context"), first_turn=120)
UNLISTED = Load(("search_context",), first_turn=1_000)
WITH_SCHEMAS = Load(("get_messages", "search_context"), first_turn=620, schemas=True)


@dataclass(slots=True)
class ClientCosts:
    """CPU of each call in milliseconds, by round, and the latencies at the client, by operation."""

    server_cpu: dict[str, list[float]] = field(default_factory=dict)
    client_cpu: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)


def available_clients() -> Iterator[str]:
    """Yield the clients that can be measured; report the others."""
    yield "official"
    try:
        _FASTMCP.install()
    except NotInstallable as error:
        print(f"peer: measured without fastmcp: {error}", flush=True)
    else:
        yield "fastmcp"


async def client_costs(client: str, parties: list[Party], load: Load, rounds: int, calls: int) -> list[ClientCosts]:
    """Measure servers with one client, in alternation."""
    results = [ClientCosts() for _ in parties]
    first = load.first_turn + _TURNS_OF_CLIENT[client]
    sides = [replace(party, first_turn=first, _turns={}) for party in parties]
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(_client(client, side, schemas=load.schemas)) for side in sides]
        for operation in load.operations:
            # The first round is not counted.
            for counted in [False, *[True] * rounds]:
                for side, process, result in zip(sides, running, results, strict=True):
                    server_cpu, answer = await process.measure(side, operation, calls)
                    if counted:
                        result.server_cpu.setdefault(operation, []).append(server_cpu / calls * _MILLIS)
                        result.client_cpu.setdefault(operation, []).append(answer["cpu"] / calls * _MILLIS)
                        result.seconds.setdefault(operation, []).extend(answer["seconds"])
    return results


class _Process:
    """A client in its own process."""

    def __init__(self, process: asyncio.subprocess.Process, output_schemas: dict[str, Any]) -> None:
        self._process = process
        self._output_schemas = output_schemas

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the client ended")
        return dict(json.loads(answer))

    async def measure(self, party: Party, operation: str, calls: int) -> tuple[float, dict[str, Any]]:
        """Return the seconds of CPU that the server used, and what the client reports."""
        asked = [
            {"tool": operation, "arguments": OPERATIONS[operation](party, turn) | party.access.arguments}
            for turn in islice(party.turns(operation), calls)
        ]
        await settled(party.served.pid)
        before = cpu_with_children(party.served.pid)
        answer = await self.ask({"calls": asked, "output_schemas": self._output_schemas})
        return cpu_with_children(party.served.pid) - before, answer


@asynccontextmanager
async def _client(client: str, party: Party, *, schemas: bool) -> AsyncIterator[_Process]:
    python = sys.executable if client == "official" else _FASTMCP.program("python")
    described = await _output_schemas(party) if schemas else {}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(python, str(_PROGRAM), stdin=pipe, stdout=pipe, limit=_LINE_BYTES)
    try:
        running = _Process(process, described)
        headers = {name.replace("_", "-"): value for name, value in party.access.headers.items()}
        if party.access.token is not None:
            headers["authorization"] = f"Bearer {party.access.token}"
        url = f"http://127.0.0.1:{party.served.port}{party.path}"
        await running.ask({"client": client, "url": url, "headers": headers})
        yield running
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _output_schemas(party: Party) -> dict[str, Any]:
    client = await party.client()
    described = {}
    for tool in WITH_SCHEMAS.operations:
        answer = await party.ask(client, "weftline_tools", action="describe", name=tool, output_schema=True)
        described[tool] = answer["output_schema"]
    await client.connection.close()
    return described
