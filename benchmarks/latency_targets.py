"""How long a caller waits for each kind of call, over HTTP: alone, and beside nineteen others."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from benchmarks.grown_tenant import query
from benchmarks.harness import Row, limited
from benchmarks.servers import AGENT, call, folder, open_app, prepare, weft_server
from benchmarks.wire import Connection, connect, request, run_async, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CALLERS = 20
_PAGE = 50
_KEYS = 50
_VALUE_CHARS = 200
_MILLIS = 1_000
_FILLED = "filled"
_OPEN = "open"
_TOKEN_MILLIS = 5


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of call, and what it may take."""

    name: str
    below_ms: float
    request: Callable[[int, str], bytes]


@dataclass(frozen=True, slots=True)
class Load:
    """How much to ask."""

    calls: int
    messages: int
    tokens: int


def _create_session(turn: int, token: str) -> bytes:
    return request("POST", "/v1/sessions", token, {"purpose": f"session {turn}"})


def _add_message(turn: int, token: str) -> bytes:
    return request("POST", f"/v1/sessions/{_OPEN}/messages", token, {"content": f"{turn} {query(turn) * 3}"})


def _get_messages(turn: int, token: str) -> bytes:
    return request("GET", f"/v1/sessions/{_FILLED}/messages?limit={_PAGE}&offset={turn % 50}", token)


def _search(turn: int, token: str) -> bytes:
    return request("GET", f"/v1/sessions/{_FILLED}/search?query={quote(query(turn))}", token)


def _cold_search(turn: int, token: str) -> bytes:
    return request("GET", f"/v1/sessions/{_cold(turn)}/search?query={quote(query(turn))}", token)


def _set_memory(turn: int, token: str) -> bytes:
    return request("PUT", f"/v1/memory/key_{turn % _KEYS}", token, {"value": {"note": query(turn)}})


def _get_memory(turn: int, token: str) -> bytes:
    return request("GET", f"/v1/memory/key_{turn % _KEYS}", token)


def _cold(turn: int) -> str:
    return f"cold_{turn}"


# No call repeats another, so that no answer comes from a cache of answers.
_TARGETS = (
    Target("create_session", 10, _create_session),
    Target("add_message", 20, _add_message),
    Target("get_messages", 30, _get_messages),
    Target("search", 100, _search),
    Target("set_memory", 10, _set_memory),
    Target("get_memory", 10, _get_memory),
)
_FIRST_SEARCH = Target("search_cold", 100, _cold_search)


def run(*, quick: bool) -> list[Row]:
    return run_async(
        _run(Load(calls=40, messages=100, tokens=5) if quick else Load(calls=500, messages=1_000, tokens=100))
    )


async def _run(load: Load) -> list[Row]:
    with folder() as data:
        url = str(data / "weft.db")
        cold = [_cold(turn) for turn in range(min(load.tokens, 20))]
        key = await prepare(url, [_FILLED, _OPEN, *cold])
        await _fill(url, [_FILLED, *cold], load.messages)
        with weft_server(data) as served:
            connections = await connect(served.port, _CALLERS)
            rows = await _latencies("alone", connections[:1], key, load.calls)
            first_searches = await _timed(
                connections[0], [_FIRST_SEARCH.request(turn, key) for turn in range(len(cold))]
            )
            rows += _rows("alone", _FIRST_SEARCH, first_searches)
            rows += await _latencies("twenty", connections, key, load.calls)
            rows += await _token_validation(connections[0], key, load.tokens)
            return rows


async def _fill(url: str, sessions: Sequence[str], messages: int) -> None:
    app = await open_app(url)
    try:
        for session_id in sessions:
            contents = islice(texts(_VALUE_CHARS), messages)
            await asyncio.gather(
                *(
                    call(app, "message.add", session_id=session_id, content=f"{query(number)} {content}")
                    for number, content in enumerate(contents)
                )
            )
    finally:
        await app.close()


async def _latencies(name: str, connections: Sequence[Connection], key: str, calls: int) -> list[Row]:
    rows: list[Row] = []
    for target in _TARGETS:
        await _timed(connections[0], [target.request(turn, key) for turn in range(_KEYS)])
        # From another place for each crowd, so that neither finds what the other asked before.
        first = _KEYS + len(connections) * calls
        own = [
            [target.request(first + turn, key) for turn in range(place, calls, len(connections))]
            for place in range(len(connections))
        ]
        taken = await asyncio.gather(*map(_timed, connections, own))
        rows += _rows(name, target, [millis for each in taken for millis in each])
    return rows


async def _timed(connection: Connection, requests: Sequence[bytes]) -> list[float]:
    taken = []
    for prepared in requests:
        started = time.perf_counter()
        await connection.ask(prepared)
        taken.append((time.perf_counter() - started) * _MILLIS)
    return taken


async def _token_validation(connection: Connection, key: str, count: int) -> list[Row]:
    """Compare the first call with a token, which validates it, with the same call once it is known."""
    tokens = [await _new_token(connection, key) for _ in range(count)]
    calls = [_get_memory(0, token) for token in tokens]
    first, known = await _timed(connection, calls), await _timed(connection, calls)
    return [
        limited(
            "latency_targets.token_validation.p50", max(median(first) - median(known), 0.0), "ms", below=_TOKEN_MILLIS
        ),
        limited(
            "latency_targets.token_validation.p95", max(_p95(first) - median(known), 0.0), "ms", below=_TOKEN_MILLIS
        ),
    ]


async def _new_token(connection: Connection, key: str) -> str:
    wanted: dict[str, Any] = {"agent_id": AGENT, "agent_type": AGENT, "api_key": key}
    body = (await connection.ask(request("POST", "/v1/tokens", None, wanted))).body
    return body.split(b'"token":"')[1].split(b'"')[0].decode()


def _rows(crowd: str, target: Target, taken: Sequence[float]) -> list[Row]:
    name = f"latency_targets.{crowd}.{target.name}"
    return [
        limited(f"{name}.p50", median(taken), "ms", below=target.below_ms),
        limited(f"{name}.p95", _p95(taken), "ms", below=target.below_ms),
    ]


def _p95(taken: Sequence[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.95)]
