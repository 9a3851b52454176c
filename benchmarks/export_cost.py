"""Seconds and memory to export a session of 10,000 events as one bundle, and to import it elsewhere.

Half of the events are versions of 500 keys, half are messages. The bundle goes through a file, as in a server that
streams it. Seconds are those of the fastest round, since other load only adds to them; the CPU time includes that of
PostgreSQL's processes. Memory is the peak of Python's allocations in a separate run, compared with a session of a tenth
of the events: it must not grow with the session.
"""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.grown_board import backend_seconds
from benchmarks.harness import Compared, Row, limited
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import ADMIN, call, folder, open_app, prepare
from benchmarks.wire import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from weftline.app.app import App

    NewApp = Callable[[str], Awaitable[App]]

_BELOW_SECONDS = 2
_MAX_GROWTH = 1.5
_KEYS = 500
_CALLERS = 16
_CHUNK = 65_536
_KIBIBYTE = 1_024
_SMALL_FRACTION = 10
_SOURCE = "source"


class Sizes(NamedTuple):
    """Sizes and number of rounds."""

    rounds: int
    events: int


class TransferCost(NamedTuple):
    """Results of one export and import."""

    seconds: float
    cpu_seconds: float
    lines: int
    peak: float
    import_seconds: float
    import_peak: float


def run(*, quick: bool) -> list[Row]:
    sizes = Sizes(rounds=1, events=200) if quick else Sizes(rounds=5, events=10_000)
    return [*run_async(_on_sqlite(sizes)), *run_async(_on_postgres(sizes))]


async def _on_sqlite(sizes: Sizes) -> list[Row]:
    with folder() as data:

        async def new_app(name: str) -> App:
            url = str(data / f"{name}.db")
            await prepare(url, [])
            return await open_app(url)

        return await _measure("sqlite", sizes, new_app, data)


async def _on_postgres(sizes: Sizes) -> list[Row]:
    with folder() as data, postgres_server() as server:

        async def new_app(name: str) -> App:
            url = await postgres_database(server, name)
            await prepare(url, [])
            return await open_app(url)

        return await _measure("postgres", sizes, new_app, data)


async def _measure(database: str, sizes: Sizes, new_app: NewApp, data: Path) -> list[Row]:
    source = await new_app(_SOURCE)
    few, many = [
        await _transfer_cost(database, source, events, sizes.rounds, new_app, data)
        for events in (sizes.events // _SMALL_FRACTION, sizes.events)
    ]
    await source.close()
    against = f"{sizes.events // _SMALL_FRACTION} events"
    name = f"export_cost.{database}"
    return [
        limited(f"{name}.export.{sizes.events}_events", many.seconds, "s", below=_BELOW_SECONDS),
        Row(f"{name}.export_cpu.{sizes.events}_events", round(many.cpu_seconds, 2), "s CPU"),
        Row(f"{name}.lines.{sizes.events}_events", many.lines, "lines"),
        _compared(many.peak, few.peak).row(f"{name}.export_peak", "KiB", against, at_most=_MAX_GROWTH),
        Row(f"{name}.import.{sizes.events}_events", round(many.import_seconds, 2), "s"),
        _compared(many.import_peak, few.import_peak).row(f"{name}.import_peak", "KiB", against),
    ]


async def _transfer_cost(
    database: str, source: App, events: int, rounds: int, new_app: NewApp, data: Path
) -> TransferCost:
    session_id = f"s{events}"
    await _fill(source, session_id, events)
    bundle = data / f"{session_id}.ndjson"
    await _export(source, session_id, bundle)
    before = _cpu_seconds(database)
    seconds = [await _timed(_export(source, session_id, bundle)) for _ in range(rounds)]
    cpu_seconds = (_cpu_seconds(database) - before) / rounds
    peak = await _peak(_export(source, session_id, bundle))
    timed, traced = await new_app(f"timed_{events}"), await new_app(f"traced_{events}")
    import_seconds, import_peak = await _timed(_import(timed, bundle)), await _peak(_import(traced, bundle))
    for app in (timed, traced):
        await app.close()
    with bundle.open("rb") as file:
        return TransferCost(min(seconds), cpu_seconds, sum(1 for _ in file), peak, import_seconds, import_peak)


async def _fill(app: App, session_id: str, events: int) -> None:
    """Fill a session with a number of events."""
    config = {"max_total_tokens": 1_000_000}
    await call(app, "session.create", purpose="a benchmark", session_id=session_id, config=config)

    async def caller(own: int) -> None:
        for number in range(own, events, _CALLERS):
            text = f"{number} " + "what was found so far " * 8
            if number % 2:
                await call(app, "message.add", session_id=session_id, content=text)
            else:
                await call(app, "board.write", session_id=session_id, key=f"key_{number // 2 % _KEYS}", value=text)

    await asyncio.gather(*map(caller, range(_CALLERS)))


async def _export(app: App, session_id: str, bundle: Path) -> None:
    request = {"scope": "session", "session_id": session_id}
    async with app.transfers.send(request, ADMIN) as export:
        with bundle.open("wb") as file:
            while chunk := export.file.read(_CHUNK):
                file.write(chunk)


async def _import(app: App, bundle: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        with bundle.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    await app.transfers.receive({}, ADMIN, chunks())


def _cpu_seconds(database: str) -> float:
    """Return the CPU time of this process and of the database's processes so far."""
    return time.process_time() + (backend_seconds(_SOURCE) if database == "postgres" else 0.0)


async def _timed(work: Awaitable[None]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def _peak(work: Awaitable[None]) -> float:
    """Return the peak of additional memory in KiB."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await work
        return (tracemalloc.get_traced_memory()[1] - before) / _KIBIBYTE
    finally:
        tracemalloc.stop()


def _compared(ours: float, theirs: float) -> Compared:
    return Compared(ours, theirs, ours / theirs)
