"""Assembly of prompts: latency by callers and items of the tenant, cost by stage, load peaks and memory.

Sizes are WEFTLINE_BENCH_ITEMS, such as ``1000,1000000``: a million is filled in minutes, so it is measured on request
only. Every caller is an agent in a loop: a question is added to its window, then the prompt for it is assembled.
Searches of the same tenant in the same run are the baseline.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import count
from statistics import mean, median
from typing import TYPE_CHECKING, Any

# As on a server.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.harness import Baseline, Row, in_subprocess, limited, resident_bytes
from benchmarks.search_scale import grow, load, sizes_asked
from benchmarks.servers import ROOMY, folder
from benchmarks.wire import run_async
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.search_scale import Installation

_MODEL = "claude-sonnet-5"
_SESSION = "assembly"
_SHORT, _LONG = 60, 2_000
_CALLERS = (1, 16, 64)
_EVENTS_PER_CALL = 200
# p95 in milliseconds for one caller with the short window, by items of the tenant.
_TARGETS = {100_000: 60.0, 1_000_000: 150.0}
_MAX_GROWTH_MB = 64
_STAGES = ("gather", "retrieve", "plan", "render", "store")


@dataclass(frozen=True, slots=True)
class Effort:
    """Numbers of calls and agents; events of the long window. ``at_once``: calls of the load peak, 0 for none."""

    calls: int
    agents: int
    at_once: int
    long_window: int


_FULL = Effort(calls=60, agents=64, at_once=1_000, long_window=_LONG)
_QUICK = Effort(calls=8, agents=4, at_once=16, long_window=100)


def run(*, quick: bool) -> list[Row]:
    return run_sizes(_in_files, quick=quick)


def run_sizes(measure: Callable[[int, Effort], list[Row]], *, quick: bool) -> list[Row]:
    """Measure every size in a subprocess; the load peak only at the largest."""
    sizes = sizes_asked("WEFTLINE_BENCH_ITEMS", "200" if quick else "1000,100000")
    effort = _QUICK if quick else _FULL
    efforts = [effort if size == max(sizes) else replace(effort, at_once=0) for size in sizes]
    return [row for size, each in zip(sizes, efforts, strict=True) for row in in_subprocess(measure, size, each)]


def _in_files(size: int, effort: Effort) -> list[Row]:
    with folder() as data:
        return run_async(measured(f"assembly.{size}", str(data / "weftline.db"), data, size, effort))


async def measured(name: str, url: str, data: Path, size: int, effort: Effort) -> list[Row]:
    """Fill an installation and measure assemblies in it."""
    app = App(Settings(database_url=url, data_dir=str(data), rate_limits="off", session_indexing="off"))
    await app.open()
    try:
        installation = await grow(app, size, 1)
        await installation.build()
        await open_session(installation)
        agents = [await new_agent(installation, f"agent{number}", _SHORT) for number in range(effort.agents)]
        rows = await _latency(name, installation, agents, effort, size)
        long = await new_agent(installation, "long", effort.long_window)
        rows += await _long_window(f"{name}.{_LONG}_events", installation, long, effort)
        return rows + (await _peak(name, agents, effort) if effort.at_once else [])
    finally:
        await app.close()


@dataclass(frozen=True)
class Agent:
    """An agent with a window, and the stages of its assemblies in milliseconds."""

    installation: Installation
    name: str
    numbers: Iterator[int]
    stages: defaultdict[str, list[float]]

    async def turn(self) -> float:
        """Ask the next question; return the milliseconds of the assembly."""
        question = self.installation.data_source.query()
        await self.ingest([{"role": "assistant", "content": f"Done. {question}"}, {"content": question}])
        return await self.assemble(question)

    async def ingest(self, messages: Sequence[dict[str, str]]) -> None:
        events = [{"event_id": f"e{next(self.numbers)}", **message} for message in messages]
        await self._call("context.ingest", events=events)

    async def assemble(self, question: str) -> float:
        started = time.perf_counter()
        answer = await self._call("context.assemble", task_description=question, model=_MODEL)
        took = (time.perf_counter() - started) * 1_000
        shown = await self._call("receipt.show", receipt_id=answer.receipt_id, candidates=False)
        stages = shown.timing_ms | {"store": answer.took_ms - sum(shown.timing_ms.values())}
        for stage in _STAGES:
            self.stages[stage].append(stages[stage])
        return took

    async def _call(self, operation: str, **raw: Any) -> Any:  # noqa: ANN401 - the answer of any operation
        session = {} if operation.startswith("receipt.") else {"session_id": _SESSION}
        return await call_as(self.installation, operation, self.name, **session, **raw)


async def call_as(installation: Installation, operation: str, principal: str = "admin", **raw: Any) -> Any:  # noqa: ANN401 - likewise
    app, context = installation.app, CallContext(Local(installation.tenants[0], principal))
    return await app.call(app.registry[operation], raw, context)


async def open_session(installation: Installation) -> None:
    """Create the session. Its texts are of made-up words, which detectors take for attacks now and then."""
    await call_as(installation, "layer.define", layer="tenant", policy={"injection": {"agent": "annotate"}})
    await call_as(installation, "session.create", session_id=_SESSION, purpose="a benchmark", config=ROOMY)


async def new_agent(installation: Installation, name: str, events: int) -> Agent:
    """Create an agent with this many events in its window."""
    await call_as(installation, "agent.create", agent_id=name)
    await call_as(installation, "session.add_members", session_id=_SESSION, members=[name])
    agent = Agent(installation, name, count(1), defaultdict(list))
    messages = [
        {"role": role, "content": " ".join(installation.data_source.query() for _ in range(4))}
        for role, _ in zip(("user", "assistant") * events, range(events), strict=False)
    ]
    for start in range(0, events, _EVENTS_PER_CALL):
        await agent.ingest(messages[start : start + _EVENTS_PER_CALL])
    return agent


async def _latency(
    name: str, installation: Installation, agents: Sequence[Agent], effort: Effort, size: int
) -> list[Row]:
    rows = []
    for callers in _CALLERS:
        turns = _turns(agents[:callers])
        await load(turns, len(agents[:callers]), callers)
        for agent in agents:
            agent.stages.clear()
        ours = await _measured(turns, effort.calls, callers)
        searches = await _measured(installation.search, effort.calls, callers)
        where = f"{name}.{_SHORT}_events.{callers}_callers"
        rows += _compared_rows(where, ours, searches, _TARGETS.get(size) if callers == 1 else None)
        if callers == 1:
            rows += _stage_rows(f"{name}.{_SHORT}_events", agents[0])
    return rows


async def _long_window(name: str, installation: Installation, agent: Agent, effort: Effort) -> list[Row]:
    calls = max(1, effort.calls // 4)
    turns = _turns([agent])
    await load(turns, 2, 1)
    agent.stages.clear()
    ours = await _measured(turns, calls, 1)
    searches = await _measured(installation.search, calls, 1)
    return _compared_rows(f"{name}.1_callers", ours, searches, None) + _stage_rows(name, agent)


def _turns(agents: Sequence[Agent]) -> Callable[[int], Awaitable[float]]:
    return lambda number: agents[number % len(agents)].turn()


@dataclass(frozen=True, slots=True)
class _Times:
    p50: float
    p95: float
    cpu: float


async def _measured(work: Callable[[int], Awaitable[float]], calls: int, callers: int) -> _Times:
    began = time.process_time()
    milliseconds = await load(work, calls, callers)
    cpu = (time.process_time() - began) * 1_000 / calls
    p50, p95 = map(float, np.percentile(milliseconds, [50, 95]))
    return _Times(p50, p95, cpu)


def _compared_rows(name: str, ours: _Times, searches: _Times, target: float | None) -> list[Row]:
    rows = []
    for figure in ("p50", "p95", "cpu"):
        value, baseline = getattr(ours, figure), getattr(searches, figure)
        unit = "ms a turn" if figure == "cpu" else "ms"
        below = target if figure == "p95" else None
        rows.append(
            Row(
                f"{name}.{figure}",
                round(value, 2),
                unit,
                Baseline("search.query", round(baseline, 2)),
                round(value / baseline, 3),
                None if below is None else f"below {below:g} ms",
                None if below is None else value < below,
            )
        )
    return rows


def _stage_rows(name: str, agent: Agent) -> list[Row]:
    return [Row(f"{name}.stage.{stage}", round(median(agent.stages[stage]), 2), "ms") for stage in _STAGES]


async def _peak(name: str, agents: Sequence[Agent], effort: Effort) -> list[Row]:
    """Assemble many prompts at the same time; further calls take no more memory than these."""
    alone = mean([await agents[0].turn() for _ in range(5)])
    started = time.perf_counter()
    milliseconds = await _at_once(agents, effort.at_once)
    seconds = time.perf_counter() - started
    before = resident_bytes(os.getpid())
    await load(_turns(agents), 2 * effort.calls, 16)
    growth = max(0, resident_bytes(os.getpid()) - before) / 2**20
    p50, p95 = map(float, np.percentile(milliseconds, [50, 95]))
    where = f"{name}.{effort.at_once}_at_once"
    return [
        Row(f"{where}.per_second", round(effort.at_once / seconds, 1), "assemblies"),
        Row(f"{where}.p50", round(p50, 1), "ms", Baseline("alone", round(alone, 2)), round(p50 / alone, 1)),
        Row(f"{where}.p95", round(p95, 1), "ms", Baseline("alone", round(alone, 2)), round(p95 / alone, 1)),
        Row(f"{name}.memory", round(resident_bytes(os.getpid()) / 2**20, 1), "MB"),
        limited(f"{name}.memory_growth", growth, "MB", below=_MAX_GROWTH_MB),
    ]


async def _at_once(agents: Sequence[Agent], calls: int) -> list[float]:
    """Start all calls together. A call that fails ends the benchmark."""
    question = agents[0].installation.data_source.query()
    return await asyncio.gather(*(agents[number % len(agents)].assemble(question) for number in range(calls)))
