"""Server CPU of a board write and a board read over REST, against a bare Starlette echo of the same structs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from benchmarks.harness import SECOND_IN_MICROS, Row, compare, cpu_seconds
from benchmarks.servers import bare_server, folder, prepare, weftline_server
from benchmarks.wire import connect, drive, request, run_async, texts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.servers import Served
    from benchmarks.wire import Connection

_CONNECTIONS = 8
_KEYS = 10
_VALUE_CHARS = 200
_BARE = "bare Starlette + msgspec"


def run(*, quick: bool) -> list[Row]:
    return run_async(_run(rounds=2 if quick else 7, calls=10 if quick else 250))


async def _run(rounds: int, calls: int) -> list[Row]:
    sessions = [f"s{number}" for number in range(_CONNECTIONS)]
    with folder() as data:
        token = await prepare(str(data / "weftline.db"), sessions)
        with weftline_server(data) as weftline, bare_server("rest_echo") as bare:
            ours, theirs = await connect(weftline.port, _CONNECTIONS), await connect(bare.port, _CONNECTIONS)
            writes = [_writes(token, session, calls) for session in sessions]
            reads = [_reads(token, session, calls) for session in sessions]
            rows = []
            for name, requests in (("rest_write", writes), ("rest_read", reads)):
                measure_ours, measure_theirs = _cost(weftline, ours, requests), _cost(bare, theirs, requests)
                await measure_ours()
                await measure_theirs()
                result = await compare(rounds, measure_ours, measure_theirs)
                rows.append(result.row(name, "us CPU/call", _BARE, at_most=5))
            return rows


def _cost(server: Served, connections: list[Connection], requests: list[list[bytes]]) -> Callable[[], Awaitable[float]]:
    async def measure() -> float:
        before = cpu_seconds(server.pid)
        await drive(connections, requests)
        return (cpu_seconds(server.pid) - before) / sum(map(len, requests)) * SECOND_IN_MICROS

    return measure


def _writes(token: str, session: str, count: int) -> list[bytes]:
    values = islice(texts(_VALUE_CHARS), count)
    return [
        request("PUT", f"/v1/sessions/{session}/context/key_{number % _KEYS}", token, {"value": value})
        for number, value in enumerate(values)
    ]


def _reads(token: str, session: str, count: int) -> list[bytes]:
    return [request("GET", f"/v1/sessions/{session}/context/key_{number % _KEYS}", token) for number in range(count)]
