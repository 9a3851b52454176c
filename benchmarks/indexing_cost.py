"""What being found costs: CPU of a call and of indexing its item, resident memory, and the latency of others meanwhile.

Calls go over HTTP to a server that does not index. Then an App in this process indexes what they wrote: words first,
then vectors, so that each part is measured alone.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import count
from statistics import median, quantiles
from typing import TYPE_CHECKING

from benchmarks.harness import Compared, Row, cpu_seconds, limited, resident_bytes
from benchmarks.peer_load import text as message_text
from benchmarks.servers import folder, prepare, weftline_server
from benchmarks.wire import Connection, request, run_async
from weftline.app.app import App
from weftline.jobs.session_indexing import INDEX
from weftline.jobs.vectors import EMBED
from weftline.providers.embedders.factory import configured_embedders
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from weftline.indexing.embeddings import Model, Purpose, Vectors
    from weftline.providers.embedders.local import LocalEmbedder

_MILLIS = 1_000
_MEGABYTE = 1_000_000
_SESSION = "s"
_OTHERS = "others"
_SHORT_MESSAGE_BELOW = 4
_IDLE_BELOW = 120
_P95_AT_MOST = 1.2
_IDLE_SECONDS = "5"
# Seconds for a backlog and until the model is released, and what that frees at least.
_RELEASED_WITHIN = 180
_MODEL_BYTES = 15_000_000
_LONG_SENTENCES = 40
_WITHOUT_INDEXING = {"WEFTLINE_SESSION_INDEXING": "off"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of items by length, of messages in a backlog, and seconds of measured calls."""

    short: int
    long: int
    backlog: int
    seconds: float
    rounds: int


_QUICK = Sizes(short=4, long=2, backlog=40, seconds=0.5, rounds=1)
_FULL = Sizes(short=100, long=20, backlog=2_000, seconds=6, rounds=3)


def _short(number: int) -> str:
    """Return a text of about 60 characters, such as a line of a chat."""
    return message_text(number).split(".")[0] + "."


def _long(number: int) -> str:
    """Return a text of about 2,000 characters."""
    return " ".join(message_text(number * _LONG_SENTENCES + place) for place in range(_LONG_SENTENCES // 3))


def _message(number: int, text: str, token: str) -> bytes:
    del number
    return request("POST", f"/v1/sessions/{_SESSION}/messages", token, {"content": text})


def _board_key(number: int, text: str, token: str) -> bytes:
    return request("PUT", f"/v1/sessions/{_SESSION}/context/key_{number}", token, {"value": text})


def _memory(number: int, text: str, token: str) -> bytes:
    return request("PUT", f"/v1/memory/key_{number}", token, {"value": text})


def _window_event(number: int, text: str, token: str) -> bytes:
    event = {"event_id": f"e{number}", "role": "user", "content": text}
    return request("POST", f"/v1/sessions/{_SESSION}/ingest", token, {"events": [event]})


_KINDS: dict[str, Callable[[int, str, str], bytes]] = {
    "message": _message,
    "board_key": _board_key,
    "memory": _memory,
    "window_event": _window_event,
}


class MeasuredEmbedder:
    """The included model, with the CPU time that it used."""

    def __init__(self, inner: LocalEmbedder) -> None:
        self._inner = inner
        self.seconds = 0.0
        run = inner._run  # noqa: SLF001 - the only place where a thread has the texts

        def measured(texts: Sequence[str]) -> Vectors:
            started = time.thread_time()
            try:
                return run(texts)
            finally:
                self.seconds += time.thread_time() - started

        inner._run = measured  # type: ignore[method-assign]  # noqa: SLF001 - likewise

    @property
    def model(self) -> Model:
        return self._inner.model

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        return await self._inner.embed(texts, purpose)

    async def release_idle(self, seconds: float) -> bool:
        return await self._inner.release_idle(seconds)

    async def close(self) -> None:
        await self._inner.close()


def run(*, quick: bool) -> list[Row]:
    return run_async(_run(_QUICK if quick else _FULL))


async def _run(sizes: Sizes) -> list[Row]:
    rows: list[Row] = []
    for kind in _KINDS:
        rows += await _kind(kind, "short", _short, sizes.short)
        rows += await _kind(kind, "long", _long, sizes.long)
    return [*rows, *await _memory_rows(sizes), await _others(sizes)]


async def _kind(kind: str, length: str, text: Callable[[int], str], items: int) -> list[Row]:
    with folder() as data:
        token = await prepare(str(data / "weftline.db"), [_SESSION], max_value_tokens=10_000)
        # The first calls, and the first items, load what all later ones use.
        texts = [text(number) for number in range(2 * items)]
        call = await _call_cost(data, token, _KINDS[kind], texts[:items], texts[items:])
        words, vectors, model = await _indexing_cost(data, items)
    name = f"indexing_cost.{kind}.{length}"
    total = call + words + vectors
    return [
        Row(f"{name}.call", _rounded(call), "ms CPU"),
        Row(f"{name}.words", _rounded(words), "ms CPU"),
        Row(f"{name}.embedding", _rounded(model), "ms CPU"),
        Row(f"{name}.storing_vectors", _rounded(vectors - model), "ms CPU"),
        limited(f"{name}.total", total, "ms CPU", below=_SHORT_MESSAGE_BELOW)
        if (kind, length) == ("message", "short")
        else Row(f"{name}.total", _rounded(total), "ms CPU"),
    ]


async def _call_cost(
    data: Path, token: str, make: Callable[[int, str, str], bytes], warm: Sequence[str], texts: Sequence[str]
) -> float:
    """Return the server's CPU of one call in milliseconds."""
    with weftline_server(data, log_level="ERROR", settings=_WITHOUT_INDEXING) as served:
        connection = await Connection.open(served.port)
        for number, text in enumerate(warm):
            await connection.ask(make(number, text, token))
        before = cpu_seconds(served.pid)
        for number, text in enumerate(texts, len(warm)):
            await connection.ask(make(number, text, token))
        used = cpu_seconds(served.pid) - before
        await connection.close()
    return used / len(texts) * _MILLIS


async def _indexing_cost(data: Path, items: int) -> tuple[float, float, float]:
    """Return the CPU of one item in milliseconds: words, vectors, and of the latter the model's part."""
    settings = Settings(data_dir=str(data), rate_limits="off", session_indexing="off")
    (local,) = configured_embedders(settings)
    embedder = MeasuredEmbedder(local)  # type: ignore[arg-type]  # the included one
    app = App(settings, embedders=[embedder])
    app.lease_runner.rest = 0
    await app.open()
    try:
        await embedder.embed(["warm"], "passage")
        before = time.process_time()
        await app.scheduler.drain(INDEX)
        words, embedder.seconds = time.process_time() - before, 0.0
        await app.scheduler.drain(EMBED)
        vectors = time.process_time() - before - words
    finally:
        await app.close()
    # Twice as many: those of the first calls as well.
    first, second, third = (seconds / (2 * items) * _MILLIS for seconds in (words, vectors, embedder.seconds))
    return first, second, third


async def _memory_rows(sizes: Sizes) -> list[Row]:
    with folder() as data:
        token = await prepare(str(data / "weftline.db"), [_SESSION])
        with weftline_server(
            data, log_level="ERROR", settings={"WEFTLINE_EMBEDDING_IDLE_SECONDS": _IDLE_SECONDS}
        ) as served:
            start = resident_bytes(served.pid)
            connection = await Connection.open(served.port)
            await connection.ask(request("POST", "/v1/search", token, {"query": "retry budget"}))
            searched = resident_bytes(served.pid)
            await connection.ask(_message(0, _short(0), token))
            backlog = min(sizes.backlog, 1_000)
            for number in range(backlog):
                await connection.ask(_message(number, message_text(number), token))
            working = await _peak(served.pid, sizes.seconds)
            idle = await _after_idle(served.pid, working, wait=sizes.rounds > 1)
            await connection.close()
    return [
        limited("indexing_cost.resident.start", start / _MEGABYTE, "MB", below=_IDLE_BELOW),
        Row("indexing_cost.resident.first_search", _megabytes(searched), "MB"),
        Row("indexing_cost.resident.backlog", _megabytes(working), "MB"),
        Row("indexing_cost.resident.released", _megabytes(idle), "MB"),
    ]


async def _peak(pid: int, seconds: float) -> int:
    peak, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        peak = max(peak, resident_bytes(pid))
        await asyncio.sleep(0.05)
    return peak


async def _after_idle(pid: int, peak: int, *, wait: bool) -> int:
    """Wait until the server has embedded everything and released the model; return its memory then."""
    until = time.monotonic() + (_RELEASED_WITHIN if wait else 0)
    while time.monotonic() < until and resident_bytes(pid) > peak - _MODEL_BYTES:  # noqa: ASYNC110 - another process
        await asyncio.sleep(1)
    return resident_bytes(pid)


async def _others(sizes: Sizes) -> Row:
    """Compare the p95 of callers in another session during a backlog with the quiet one, in turn."""
    with folder() as data:
        token = await prepare(str(data / "weftline.db"), [_SESSION, _OTHERS])
        with weftline_server(data, log_level="ERROR", settings=_WITHOUT_INDEXING) as served:
            connection = await Connection.open(served.port)
            for number in range(sizes.backlog):
                await connection.ask(_message(number, message_text(number), token))
            await connection.close()
        turns = count()
        pairs = [
            (
                await _p95(data, token, {}, sizes.seconds, turns),
                await _p95(data, token, _WITHOUT_INDEXING, sizes.seconds, turns),
            )
            for _ in range(sizes.rounds)
        ]
    busy, quiet = (median(each) for each in zip(*pairs, strict=True))
    compared = Compared(busy, quiet, median(one / other for one, other in pairs))
    return compared.row("indexing_cost.others_p95", "ms", "without a backlog", at_most=_P95_AT_MOST)


async def _p95(data: Path, token: str, settings: dict[str, str], seconds: float, turns: Iterator[int]) -> float:
    with weftline_server(data, log_level="ERROR", settings=settings) as served:
        connection = await Connection.open(served.port)
        # The indexer has started by then.
        await asyncio.sleep(min(2, seconds))
        taken: list[float] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            turn = next(turns)
            prepared = _other_call(turn, token)
            started = time.perf_counter()
            await connection.ask(prepared)
            taken.append(time.perf_counter() - started)
            await asyncio.sleep(0.005)
        await connection.close()
    return quantiles(taken, n=20)[-1] * _MILLIS


def _other_call(turn: int, token: str) -> bytes:
    """Return a call of a caller in another session: each key is written before it is read."""
    key = f"/v1/memory/key_{turn // 4 % 50}"
    calls = (
        ("POST", f"/v1/sessions/{_OTHERS}/messages", {"content": _short(turn)}),
        ("GET", f"/v1/sessions/{_OTHERS}/messages?limit=50", None),
        ("PUT", key, {"value": _short(turn)}),
        ("GET", key, None),
    )
    method, path, body = calls[turn % 4]
    return request(method, path, token, body)


def _megabytes(size: int) -> float:
    return _rounded(size / _MEGABYTE)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
