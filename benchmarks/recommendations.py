"""Time of trials: the last 50 and 200 calls of an agent planned again, and the pauses of other callers meanwhile.

An agent asks question after question, one assembly for each, in an installation with 10,000 items. Tried are a higher
minimum score, which plans every call twice, and another compaction, which also compacts the window as it grew. ``list``
analyses 50 calls and tries every recommendation. Elapsed time includes what other programs take of the machine, CPU
time of the process, with the same targets, does not.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.assembly import call_as, new_agent, open_session
from benchmarks.harness import Row, limited
from benchmarks.search_scale import grow
from benchmarks.servers import folder
from benchmarks.wire import run_async
from weftline.app.app import App
from weftline.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.assembly import Agent

_ITEMS, _QUICK_ITEMS = 10_000, 200
_EVENTS = 60
_CALLS, _QUICK_CALLS = 200, 24
_FEW = 50
_MS_PER_CALL = 20.0
_LIST_SECONDS = 15.0
_PAUSE_MS = 100.0
_COMPACTION = {"compaction": {"strategy": "key_facts", "threshold": 0.05, "keep_recent": 10}}


def run(*, quick: bool) -> list[Row]:
    with folder() as data:
        return run_async(_measured(data, quick=quick))


async def _measured(data: Path, *, quick: bool) -> list[Row]:
    url = str(data / "weftline.db")
    app = App(Settings(database_url=url, data_dir=str(data), rate_limits="off", session_indexing="off"))
    await app.open(background=False)
    try:
        installation = await grow(app, _QUICK_ITEMS if quick else _ITEMS, 1)
        await installation.build()
        await open_session(installation)
        agent = await new_agent(installation, "tried", _EVENTS)
        calls = _QUICK_CALLS if quick else _CALLS
        for _ in range(calls):
            await agent.turn()
        return [row async for row in _rows(agent, calls)]
    finally:
        await app.close()


async def _rows(agent: Agent, calls: int) -> Any:  # noqa: ANN401 - an iterator of rows
    few = min(calls, _FEW)
    for number in dict.fromkeys((few, calls)):
        spent = await _timed(agent, "advise.try", settings={"min_score": 0.4}, calls=number)
        name = f"recommendations.try.{number}"
        yield limited(name, spent.seconds * 1000 / number, "ms/call", below=_MS_PER_CALL)
        yield limited(f"{name}.cpu", spent.cpu * 1000 / number, "ms of CPU/call", below=_MS_PER_CALL)
    spent = await _timed(agent, "advise.try", settings=_COMPACTION, calls=few)
    yield Row("recommendations.try.compaction", round(spent.seconds * 1000 / few, 2), "ms/call")
    yield limited("recommendations.try.pause", spent.pause * 1000, "ms", below=_PAUSE_MS)
    spent = await _timed(agent, "advise.list", calls=few)
    yield limited("recommendations.list", spent.seconds, "s", below=_LIST_SECONDS)
    yield limited("recommendations.list.cpu", spent.cpu, "s of CPU", below=_LIST_SECONDS)


class Spent(NamedTuple):
    """Seconds of a call: elapsed, of CPU, and the longest pause of the event loop during it."""

    seconds: float
    cpu: float
    pause: float


async def _timed(agent: Agent, operation: str, **fields: Any) -> Spent:  # noqa: ANN401 - JSON
    pauses: list[float] = []
    watching = asyncio.create_task(_watch(pauses))
    started, cpu = time.perf_counter(), time.process_time()
    await call_as(agent.installation, operation, agent.name, **fields)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    watching.cancel()
    return Spent(seconds, cpu, max(pauses, default=0.0))


async def _watch(pauses: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.005)
        pauses.append(time.perf_counter() - before - 0.005)
