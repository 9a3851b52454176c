"""What the model proxy adds to a call: latency, time to the first byte of a stream, CPU and memory.

Latency is that of calls through the proxy over that of the same calls to the provider itself, in turns; beside it
stands what a bare proxy of Starlette and httpx adds to the same calls in the same round. The agents' conversations
grow with each call and are recorded; one that has grown by a half is followed by another, so that requests keep their
size. One caller is answered at once. Many callers have a provider that thinks, as models do: what they could send to
one that does not is the throughput, a row of its own. CPU is compared with the same bare proxy, without a database.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.harness import SECOND_IN_MICROS, Baseline, Row, compare, cpu_seconds, limited, resident_bytes
from benchmarks.servers import AGENT, bare_server, folder, prepare, server
from benchmarks.wire import Connection, connect, request, run_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager

    from benchmarks.servers import Served

_PROXY = (
    "import os; from weftline.models.language_models.chat_model import ChatCaller; "
    "from weftline.settings import Settings; from weftline.transports.proxy.server import serve_proxy; "
    "serve_proxy(Settings.from_environment(proxy_port=os.environ['PORT']), "
    "ChatCaller('default', os.environ.get('AGENT', 'admin')))"
)
_PATH = "/v1/messages"
_SIZES = {"8kb": 8_192, "400kb": 409_600}
_CALLERS = 32
_STREAMS = 200
_MILLIS = 1_000
_MEBIBYTE = 2**20
# The median and the 95th of 100 calls, in milliseconds, by what the proxy may change.
_LIMITS = {"observe": (3, 15), "trim": (5, 25), "full": (15, 60)}
_FIRST_BYTE_MS = 2
_MAX_MB = 300
_THINKING_MS = 2_000
_MESSAGE_BYTES = 4_096
_MOST_GROWN = 1.5


def run(*, quick: bool) -> list[Row]:
    if quick:
        return run_async(_run(rounds=2, calls=10, thinking_ms=20))
    return run_async(_run(rounds=5, calls=200, thinking_ms=_THINKING_MS))


async def _run(rounds: int, calls: int, thinking_ms: int) -> list[Row]:
    with bare_server("model_upstream") as provider:
        url = f"http://127.0.0.1:{provider.port}"
        upstreams = {"WEFTLINE_PROXY_UPSTREAMS": f"anthropic={url}"}
        rows = []
        ours = _server({**upstreams, "WEFTLINE_DATA_DIR": "/nonexistent"})
        theirs = server([sys.executable, "-m", "benchmarks.baselines.httpx_proxy"], {"UPSTREAM": url}, _PATH)
        with theirs as bare:
            for mode in _LIMITS:
                rows += await _of_mode(mode, (provider, bare), upstreams, rounds, calls, thinking_ms)
            with ours as proxy:
                rows.append(await _first_byte(proxy, provider, calls * rounds))
                rows.append(await _throughput(proxy, calls * rounds))
                rows.append(await _cpu(proxy, bare, rounds, calls))
                rows.append(await _memory(proxy))
        return rows


def _server(settings: dict[str, str]) -> AbstractContextManager[Served]:
    return server([sys.executable, "-c", _PROXY], settings, f"/anthropic{_PATH}")


async def _of_mode(
    mode: str, others: tuple[Served, Served], upstreams: dict[str, str], rounds: int, calls: int, thinking_ms: int
) -> list[Row]:
    rows = []
    with folder() as data:
        await prepare(str(data / "weftline.db"), ())
        settings = {**upstreams, "WEFTLINE_DATA_DIR": str(data), "WEFTLINE_PROXY_MODE": mode, "AGENT": AGENT}
        with _server(settings) as proxy:
            for name, size in _SIZES.items():
                for callers in (1, _CALLERS):
                    label = f"{mode}.{name}.{callers}_callers"
                    agents = [_Agent(f"{label}-{number}", size) for number in range(callers)]
                    delay = thinking_ms if callers > 1 else 0
                    added = await _added(proxy, others, agents, delay, rounds, max(calls // callers, 3))
                    rows += [
                        replace(limited(f"proxy.added.{label}.{part}", ours, "ms", below=limit), baseline=_bare(bare))
                        for part, limit, (ours, bare) in zip(("p50", "p95"), _LIMITS[mode], added, strict=True)
                    ]
    return rows


def _bare(added: float) -> Baseline:
    return Baseline("bare Starlette + httpx", round(added, 3))


async def _added(
    proxy: Served, others: tuple[Served, Served], agents: Sequence[_Agent], delay_ms: int, rounds: int, calls: int
) -> list[tuple[float, float]]:
    """Return by how much the median and the 95th of 100 calls are later than direct ones: ours, and a bare proxy's."""
    provider, bare = others
    added: list[list[tuple[float, float]]] = []
    headers = {"x_delay": str(delay_ms)}
    for number in range(rounds + 1):
        asked = [[agent.next() for _ in range(calls)] for agent in agents]
        percentiles = []
        for served, path in ((proxy, f"/anthropic{_PATH}"), (bare, _PATH), (provider, _PATH)):
            sent = [[_call(path, body, **headers) for body in bodies] for bodies in asked]
            percentiles.append(_percentiles(await _new_times(served, sent, delay_ms)))
        ours, theirs, without = percentiles
        # The first round opens conversations and connections.
        if number:
            added.append([(ours[at] - without[at], theirs[at] - without[at]) for at in range(2)])
    return [
        (max(median(mine for mine, _ in each), 0.0), max(median(other for _, other in each), 0.0))
        for each in zip(*added, strict=True)
    ]


class _Agent:
    """A program whose requests repeat its conversation, with the call and result of a tool more each time."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._begun = 0
        self._limit = size * _MOST_GROWN
        self._size = size
        self._begin()

    def next(self) -> dict[str, Any]:
        if self._held > self._limit:
            self._begin()
        self._work(200)
        return {"model": "claude-sonnet-4-5", "metadata": self._session, "messages": [*self._messages]}

    def _begin(self) -> None:
        self._begun += 1
        self._held = 0
        self._session = {"user_id": f"user_1_account_1_session_{self._name}-{self._begun:09}"}
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": f"The task of {self._name}, {self._begun}"}]
        while self._held < self._size:
            self._work(_MESSAGE_BYTES)

    def _work(self, size: int) -> None:
        at = len(self._messages)
        call = {"type": "tool_use", "id": f"toolu_{at}", "name": "read_file", "input": {"path": f"src/{at}.py"}}
        line = f"line {at} of a file that the agent has read, with the words that such lines have\n"
        result = {"type": "tool_result", "tool_use_id": f"toolu_{at}", "content": line * (size // len(line) + 1)}
        made = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        self._held += sum(len(str(message)) for message in made)
        self._messages += made


async def _throughput(proxy: Served, calls: int) -> Row:
    """Return how many calls a second one process forwards for callers that are answered at once."""
    connections = await connect(proxy.port, _CALLERS)
    prepared = [[_post(f"/anthropic{_PATH}", 8_192)] * max(calls // _CALLERS, 1)] * _CALLERS
    started = perf_counter()
    await _times(connections, prepared)
    taken = perf_counter() - started
    for connection in connections:
        await connection.close()
    return Row("proxy.throughput", len(prepared) * len(prepared[0]) / taken, "calls/s")


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
    return _call(path, {"model": "claude-sonnet-4-5", "messages": "x" * size}, **headers)


def _call(path: str, body: dict[str, Any], **headers: str) -> bytes:
    return request("POST", path, "sk", body, **headers)


async def _new_times(served: Served, prepared: Sequence[Sequence[bytes]], spread_ms: int) -> list[float]:
    """Return the milliseconds of calls on new connections: others were idle while the requests were prepared."""
    connections = await connect(served.port, len(prepared))
    taken = await _times(connections, prepared, spread_ms)
    for connection in connections:
        await connection.close()
    return taken


async def _times(
    connections: Sequence[Connection], prepared: Sequence[Sequence[bytes]], spread_ms: int = 0
) -> list[float]:
    """Return the milliseconds of calls, one after the other on each connection; their starts are spread over a time."""
    random = Random(1)

    async def ask(connection: Connection, calls: Sequence[bytes]) -> list[float]:
        taken = []
        await asyncio.sleep(random.random() * spread_ms / _MILLIS)
        for call in calls:
            started = perf_counter()
            await connection.ask(call)
            taken.append((perf_counter() - started) * _MILLIS)
        return taken

    return [each for taken in await asyncio.gather(*map(ask, connections, prepared)) for each in taken]


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
        await _times(connections, [[prepared] * calls] * len(connections))
        return (cpu_seconds(served.pid) - before) / (calls * len(connections)) * SECOND_IN_MICROS

    return measure
