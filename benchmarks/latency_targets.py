"""Latency of each kind of call over HTTP: for a single caller, and for one of twenty agents.

The single caller sends one call after the other. The twenty pause between calls, as agents do; ``thousand_agents``
measures throughput under full load.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from random import random
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from benchmarks.grown_tenant import query
from benchmarks.harness import Row, limited
from benchmarks.servers import AGENT, call, folder, open_app, prepare, weftline_server
from benchmarks.wire import Connection, connect, request, run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CALLERS = 20
_PAGE = 50
_MESSAGES = 1_000
_KEYS = 50
_MILLIS = 1_000
_FILLED = "filled"
_OPEN = "open"
_TOKEN_MILLIS = 5


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of call and its latency target."""

    name: str
    below_ms: float
    request: Callable[[int, str], bytes]


@dataclass(frozen=True, slots=True)
class Load:
    """Numbers of calls."""

    rounds: int
    calls: int
    pause_seconds: float
    cold_sessions: int
    tokens: int


def _create_session(turn: int, token: str) -> bytes:
    return request("POST", "/v1/sessions", token, {"purpose": f"session {turn}"})


def _add_message(turn: int, token: str) -> bytes:
    return request("POST", f"/v1/sessions/{_OPEN}/messages", token, {"content": _text(turn)})


def _get_messages(turn: int, token: str) -> bytes:
    return request("GET", f"/v1/sessions/{_FILLED}/messages?limit={_PAGE}&offset={turn % (_MESSAGES - _PAGE)}", token)


def _search(turn: int, token: str) -> bytes:
    return request("GET", f"/v1/sessions/{_FILLED}/messages/search?query={quote(query(turn))}", token)


def _cold_search(turn: int, token: str) -> bytes:
    return request("GET", f"/v1/sessions/{_cold(turn)}/messages/search?query={quote(query(turn))}", token)


def _set_memory(turn: int, token: str) -> bytes:
    return request("PUT", f"/v1/memory/key_{turn % _KEYS}", token, {"value": {"note": query(turn)}})


def _get_memory(turn: int, token: str) -> bytes:
    return request("GET", f"/v1/memory/key_{turn % _KEYS}", token)


def _text(number: int) -> str:
    return f"{query(number)}, {query(number * 7 + 3)}, {query(number * 13)}"


def _cold(turn: int) -> str:
    return f"cold_{turn}"


# No call repeats another, so that no answer comes from a cache.
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
    load = (
        Load(rounds=1, calls=40, pause_seconds=0.1, cold_sessions=2, tokens=5)
        if quick
        else Load(rounds=3, calls=140, pause_seconds=0.4, cold_sessions=20, tokens=50)
    )
    return run_async(_run(load))


async def _run(load: Load) -> list[Row]:
    with folder() as data:
        url = str(data / "weftline.db")
        cold = [_cold(turn) for turn in range(load.cold_sessions)]
        key = await prepare(url, [_FILLED, _OPEN, *cold])
        await _fill(url, [_FILLED, *cold])
        with weftline_server(data) as served:
            connections = await connect(served.port, _CALLERS)
            first_searches = await _timed(connections[0], [_cold_search(turn, key) for turn in range(len(cold))])
            return [
                *await _latencies(load, connections, key),
                *_rows("alone", _FIRST_SEARCH, [first_searches]),
                *await _token_validation(connections[0], key, load.tokens),
            ]


async def _fill(url: str, sessions: Sequence[str]) -> None:
    app = await open_app(url)
    try:
        for session_id in sessions:
            await asyncio.gather(
                *(call(app, "message.add", session_id=session_id, content=_text(number)) for number in range(_MESSAGES))
            )
    finally:
        await app.close()


async def _latencies(load: Load, connections: Sequence[Connection], key: str) -> list[Row]:
    """Alternate single calls and concurrent ones, so that other load affects both equally."""
    crowds = {"alone": (connections[:1], 0.0), "twenty": (connections, load.pause_seconds)}
    starts = count(_KEYS, load.calls)
    taken: dict[tuple[str, Target], list[list[float]]] = defaultdict(list)
    for target in _TARGETS:
        await _timed(connections[0], [target.request(turn, key) for turn in range(_KEYS)])
    for _ in range(load.rounds):
        for name, (crowd, pause) in crowds.items():
            start = next(starts)
            for target in _TARGETS:
                requests = [target.request(turn, key) for turn in range(start, start + load.calls)]
                taken[name, target].append(await _shared(crowd, requests, pause))
    return [row for (name, target), rounds in taken.items() for row in _rows(name, target, rounds)]


async def _shared(connections: Sequence[Connection], requests: Sequence[bytes], pause: float) -> list[float]:
    own = [requests[place :: len(connections)] for place in range(len(connections))]
    each = await asyncio.gather(*(_timed(*pair, pause) for pair in zip(connections, own, strict=True)))
    return [millis for taken in each for millis in taken]


async def _timed(connection: Connection, requests: Sequence[bytes], pause: float = 0.0) -> list[float]:
    """Return the milliseconds of each call, with a random pause before it."""
    taken = []
    for prepared in requests:
        await asyncio.sleep(random() * pause)
        started = time.perf_counter()
        await connection.ask(prepared)
        taken.append((time.perf_counter() - started) * _MILLIS)
    return taken


async def _token_validation(connection: Connection, key: str, count: int) -> list[Row]:
    """Compare the first call with a token, which verifies it, with later calls, which use the cache."""
    tokens = [await _new_token(connection, key) for _ in range(count)]
    calls = [_get_memory(0, token) for token in tokens]
    first, cached = await _timed(connection, calls), await _timed(connection, calls)
    return [
        limited(
            "latency_targets.token_validation.p50", max(median(first) - median(cached), 0.0), "ms", below=_TOKEN_MILLIS
        ),
        limited(
            "latency_targets.token_validation.p95", max(_p95(first) - median(cached), 0.0), "ms", below=_TOKEN_MILLIS
        ),
    ]


async def _new_token(connection: Connection, key: str) -> str:
    payload: dict[str, Any] = {"agent_id": AGENT, "agent_type": AGENT, "api_key": key}
    body = (await connection.ask(request("POST", "/v1/tokens", None, payload))).body
    return body.split(b'"token":"')[1].split(b'"')[0].decode()


def _rows(crowd: str, target: Target, rounds: Sequence[Sequence[float]]) -> list[Row]:
    name = f"latency_targets.{crowd}.{target.name}"
    return [
        limited(f"{name}.p50", median(map(median, rounds)), "ms", below=target.below_ms),
        limited(f"{name}.p95", median(map(_p95, rounds)), "ms", below=target.below_ms),
    ]


def _p95(taken: Sequence[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.95)]
