"""CPU that a call of a tool costs more through the gateway than at its MCP server, in both eras of the client.

The server is the bare SDK's echo tool over HTTP. Counted is what Weftline and that server take for a call through the
gateway, less what the server takes for the same call of a client of its own. The gate scans each answer for injected
instructions with a model, once for the same text: answers that it has seen and new ones are rows of their own.
"""

from __future__ import annotations

import os
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

from benchmarks.harness import SECOND_IN_MICROS, Row, cpu_seconds, limited
from benchmarks.servers import bare_server, call, folder, prepare, weftline_server
from benchmarks.wire import LEGACY, MODERN, McpClient, connect, drive, run_async, texts
from weftline.app.app import App
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.servers import Served

_CONNECTIONS = 4
_VALUE_CHARS = 200
_TOKEN, _VARIABLE = "the-token-of-the-echo", "TOKEN_OF_THE_ECHO"
_SETTINGS = {"gateway_private_hosts": "127.0.0.1", "gateway_environment": _VARIABLE}
_LIMIT_MICROS = 2_000


def run(*, quick: bool) -> list[Row]:
    return run_async(_run(rounds=2 if quick else 5, calls=5 if quick else 50))


async def _run(rounds: int, calls: int) -> list[Row]:
    with folder() as data, bare_server("mcp_echo", _TOKEN) as echo:
        key = await prepare(str(data / "weftline.db"), [])
        await _add(data, echo)
        settings = {f"WEFTLINE_{name.upper()}": value for name, value in _SETTINGS.items()}
        settings[_VARIABLE] = _TOKEN
        with weftline_server(data, settings=settings) as weftline:
            return [row for era in (LEGACY, MODERN) for row in await _of_era(era, weftline, echo, key, rounds, calls)]


async def _add(data: Path, echo: Served) -> None:
    app = App(Settings(database_url=str(data / "weftline.db"), rate_limits="off", **_SETTINGS))
    await app.open(background=False)
    try:
        variables = {"Authorization": f"Bearer ${{{_VARIABLE}}}"}
        url = f"http://127.0.0.1:{echo.port}/mcp"
        with patch.dict(os.environ, {_VARIABLE: _TOKEN}):
            await call(app, "gateway.add", name="echo", url=url, variables=variables)
    finally:
        await app.close()


async def _of_era(era: str, weftline: Served, echo: Served, key: str, rounds: int, calls: int) -> list[Row]:
    through = [McpClient(each, key, era) for each in await connect(weftline.port, _CONNECTIONS)]
    direct = [McpClient(each, _TOKEN, era) for each in await connect(echo.port, _CONNECTIONS)]
    for client in (*through, *direct):
        await client.start()
    pids = weftline.pid, echo.pid
    more: dict[str, list[float]] = {"seen": [], "new": []}
    for turn in range(rounds + 1):
        for kind, found in more.items():
            values = list(islice(texts(_VALUE_CHARS), calls * (turn + 1)))[calls * turn if kind == "new" else 0 :][
                :calls
            ]
            if kind == "new":
                values = [f"{era} {value}" for value in values]
            ours = await _cpu(through, "echo__shared_context", values, *pids)
            theirs = await _cpu(direct, "shared_context", values, *pids)
            # The first round opens the connection to the server, and the gate sees what is the same in all rounds.
            if turn:
                found.append(ours - theirs)
    seen, new = (max(median(found), 0.0) for found in more.values())
    return [
        limited(f"gateway_cost.{era}.seen_answer", seen, "us CPU/call", below=_LIMIT_MICROS),
        Row(f"gateway_cost.{era}.new_answer", round(new), "us CPU/call"),
    ]


async def _cpu(clients: list[McpClient], tool: str, values: Sequence[str], *pids: int) -> float:
    """Return the microseconds of CPU that a call takes in these processes."""
    requests = [[client.call(tool, {"value": value}) for value in values] for client in clients]
    before = cpu_seconds(*pids)
    await drive([client.connection for client in clients], requests)
    return (cpu_seconds(*pids) - before) / (len(values) * len(clients)) * SECOND_IN_MICROS
