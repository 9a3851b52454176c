"""Server CPU of a board write over MCP, in both eras, against the bare SDK's echo tool given the same requests."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from benchmarks.harness import SECOND_IN_MICROS, Row, compare, cpu_seconds
from benchmarks.servers import bare_server, folder, prepare, weftline_server
from benchmarks.wire import LEGACY, MODERN, McpClient, connect, drive, run_async, texts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.servers import Served

_CONNECTIONS = 8
_KEYS = 10
_VALUE_CHARS = 200


def run(*, quick: bool) -> list[Row]:
    return run_async(_run(rounds=2 if quick else 5, calls=5 if quick else 80))


async def _run(rounds: int, calls: int) -> list[Row]:
    with folder() as data:
        token = await prepare(str(data / "weftline.db"), [f"s{number}" for number in range(_CONNECTIONS)])
        with (
            weftline_server(data) as weftline,
            bare_server("mcp_echo", token) as bare,
            bare_server("mcp_echo", token, "--defaults") as default,
        ):
            rows = []
            for era in (LEGACY, MODERN):
                ours, theirs, untuned = [await _cost(server, token, era, calls) for server in (weftline, bare, default)]
                result = await compare(rounds, ours, theirs)
                rows.append(result.row(f"mcp_write.{era}", "us CPU/call", "SDK echo", at_most=2.5))
                result = await compare(2, ours, untuned)
                rows.append(result.row(f"mcp_write.{era}_default", "us CPU/call", "SDK echo, its defaults"))
            return rows


async def _cost(server: Served, token: str, era: str, calls: int) -> Callable[[], Awaitable[float]]:
    clients = [McpClient(connection, token, era) for connection in await connect(server.port, _CONNECTIONS)]
    for client in clients:
        await client.start()

    async def measure() -> float:
        requests = [
            [client.write(f"s{number}", f"key_{turn % _KEYS}", value) for turn, value in enumerate(values)]
            for number, client in enumerate(clients)
            for values in [islice(texts(_VALUE_CHARS), calls)]
        ]
        before = cpu_seconds(server.pid)
        await drive([client.connection for client in clients], requests)
        return (cpu_seconds(server.pid) - before) / (calls * len(clients)) * SECOND_IN_MICROS

    await measure()
    return measure
