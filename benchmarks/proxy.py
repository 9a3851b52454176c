"""What the model proxy adds to a call: latency, time to the first byte of a stream, CPU and memory.

Latency is that of calls through the proxy over that of the same calls to the provider itself, in turns. CPU is compared
with a bare proxy of Starlette and httpx in front of the same provider.
"""

from __future__ import annotations

import asyncio
import sys
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.harness import SECOND_IN_MICROS, Row, compare, cpu_seconds, limited, resident_bytes
from benchmarks.servers import bare_server, server
from benchmarks.wire import Connection, connect, request, run_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchmarks.servers import Served

_PROXY = (
    "import os; from weftline.models.language_models.chat_model import ChatCaller; "
    "from weftline.settings import Settings; from weftline.transports.proxy.server import serve_proxy; "
    "serve_proxy(Settings.from_environment(proxy_port=os.environ['PORT']), ChatCaller('default', 'admin'))"
)
_PATH = "/v1/messages"
_SIZES = {"8kb": 8_192, "400kb": 409_600}
_CALLERS = 32
_STREAMS = 200
_MILLIS = 1_000
_MEBIBYTE = 2**20
# Of a call that is only observed, in milliseconds.
_MEDIAN_MS, _P95_MS, _FIRST_BYTE_MS = 3, 15, 2
_MAX_MB = 300


def run(*, quick: bool) -> list[Row]:
    return run_async(_run(rounds=2 if quick else 9, calls=10 if quick else 200))


async def _run(rounds: int, calls: int) -> list[Row]:
    with bare_server("model_upstream") as provider:
        url = f"http://127.0.0.1:{provider.port}"
        settings = {"WEFTLINE_PROXY_UPSTREAMS": f"anthropic={url}", "WEFTLINE_DATA_DIR": "/nonexistent"}
        ours = server([sys.executable, "-c", _PROXY], settings, f"/anthropic{_PATH}")
        theirs = server([sys.executable, "-m", "benchmarks.baselines.httpx_proxy"], {"UPSTREAM": url}, _PATH)
        with ours as proxy, theirs as bare:
            rows = []
            for name, size in _SIZES.items():
                for callers in (1, _CALLERS):
                    rows += await _latency(f"{name}.{callers}_callers", proxy, provider, size, callers, rounds, calls)
            rows.append(await _first_byte(proxy, provider, calls * rounds))
            rows.append(await _cpu(proxy, bare, rounds, calls))
            rows.append(await _memory(proxy))
            return rows


async def _latency(
    name: str, proxy: Served, provider: Served, size: int, callers: int, rounds: int, calls: int
) -> list[Row]:
    through, direct = await connect(proxy.port, callers), await connect(provider.port, callers)
    each = max(calls // callers, 3)
    added: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        with_proxy = _percentiles(await _times(through, _post(f"/anthropic{_PATH}", size), each))
        without = _percentiles(await _times(direct, _post(_PATH, size), each))
        if number:
            added.append((with_proxy[0] - without[0], with_proxy[1] - without[1]))
    for connection in (*through, *direct):
        await connection.close()
    middle, high = (max(median(values), 0.0) for values in zip(*added, strict=True))
    return [
        limited(f"proxy.added.{name}.p50", middle, "ms", below=_MEDIAN_MS),
        limited(f"proxy.added.{name}.p95", high, "ms", below=_P95_MS),
    ]


async def _first_byte(proxy: Served, provider: Served, calls: int) -> Row:
    (through,), (direct,) = await connect(proxy.port, 1), await connect(provider.port, 1)
    late = []
    for _ in range(calls):
        with_proxy = await _until_first(through, _post(f"/anthropic{_PATH}", 8_192, x_stream="5"))
        late.append(with_proxy - await _until_first(direct, _post(_PATH, 8_192, x_stream="5")))
    for connection in (through, direct):
        await connection.close()
    return limited("proxy.first_byte", max(median(late), 0.0) * _MILLIS, "ms", below=_FIRST_BYTE_MS)


async def _cpu(proxy: Served, bare: Served, rounds: int, calls: int) -> Row:
    ours, theirs = await connect(proxy.port, 8), await connect(bare.port, 8)
    measure_ours = _cost(proxy, ours, _post(f"/anthropic{_PATH}", 8_192), calls)
    measure_theirs = _cost(bare, theirs, _post(_PATH, 8_192), calls)
    await measure_ours()
    await measure_theirs()
    result = await compare(rounds, measure_ours, measure_theirs)
    return result.row("proxy.cpu", "us CPU/call", "bare Starlette + httpx", at_most=2)


async def _memory(proxy: Served) -> Row:
    """Open streams, each after a request of 400 KB, and leave them open."""
    prepared = _post(f"/anthropic{_PATH}", _SIZES["400kb"], x_stream="50", x_hold="1")
    connections = await connect(proxy.port, _STREAMS)
    for connection in connections:
        await _until_first(connection, prepared, ends=False)
    used = resident_bytes(proxy.pid) / _MEBIBYTE
    for connection in connections:
        connection.abort()
    return limited(f"proxy.memory.{_STREAMS}_streams", used, "MB", below=_MAX_MB)


def _post(path: str, size: int, **headers: str) -> bytes:
    return request("POST", path, "sk", {"model": "claude-sonnet-4-5", "messages": "x" * size}, **headers)


async def _times(connections: Sequence[Connection], prepared: bytes, each: int) -> list[float]:
    """Return the milliseconds of calls, one after the other on each connection."""

    async def ask(connection: Connection) -> list[float]:
        taken = []
        for _ in range(each):
            started = perf_counter()
            await connection.ask(prepared)
            taken.append((perf_counter() - started) * _MILLIS)
        return taken

    return [each for taken in await asyncio.gather(*map(ask, connections)) for each in taken]


async def _until_first(connection: Connection, prepared: bytes, *, ends: bool = True) -> float:
    started = perf_counter()
    chunks = connection.chunks(prepared)
    await anext(chunks)
    taken = perf_counter() - started
    if ends:
        async for _ in chunks:
            pass
    return taken


def _percentiles(times: list[float]) -> tuple[float, float]:
    return median(times), quantiles(times, n=20)[-1]


def _cost(
    served: Served, connections: Sequence[Connection], prepared: bytes, calls: int
) -> Callable[[], Awaitable[float]]:
    async def measure() -> float:
        before = cpu_seconds(served.pid)
        await _times(connections, prepared, calls)
        return (cpu_seconds(served.pid) - before) / (calls * len(connections)) * SECOND_IN_MICROS

    return measure
