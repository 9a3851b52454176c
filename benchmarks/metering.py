"""Added cost of metering per assembled prompt and board write, and reports of a tenant with a million calls a day.

Two agents assemble prompts from windows of the same length, in turn, so that other load affects both equally: one
without usage entries, one with them. Two writers write to boards: one without counting calls, one with it. Compared
are latencies and CPU time, on both databases; the CPU of PostgreSQL is that of the processes that serve Weftline.
Rolling up is done later by a job; what it costs is a row of benchmarks.usage_month.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from benchmarks.harness import Row, compared, in_subprocess
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import TENANT, call, folder
from benchmarks.usage_month import backends_of, cpu_of, measure_month
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.models.sql import UsageStore
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

_UNMETERED, _METERED = "unmetered", "metered"
_AGENTS = (_UNMETERED, _METERED)
_EVENTS = 40
_KEYS = 20
# What is compared with, and the target.
_WITHOUT = {"assembly": ("no usage entry", 1.05), "board_write": ("no counting", 1.03)}


class Cost(NamedTuple):
    """Of one call."""

    milliseconds: float
    cpu_milliseconds: float


class Effort(NamedTuple):
    """Rounds, prompts and writes of each side in a round, and whether the month is a small one."""

    rounds: int
    prompts: int
    writes: int
    quick: bool


def run(*, quick: bool) -> list[Row]:
    effort = Effort(2, 2, 5, quick=True) if quick else Effort(31, 10, 50, quick=False)
    return [row for measure in (_on_sqlite, _on_postgres) for row in in_subprocess(measure, effort)]


def _on_sqlite(effort: Effort) -> list[Row]:
    with folder() as data:
        return asyncio.run(_measured("metering.sqlite", str(data / "cost.db"), str(data / "month.db"), effort))


def _on_postgres(effort: Effort) -> list[Row]:
    async def measured(server: str) -> list[Row]:
        databases = [await postgres_database(server, name) for name in ("cost", "month")]
        return await _measured("metering.postgres", *databases, effort)

    with postgres_server() as server:
        return asyncio.run(measured(server))


async def _measured(name: str, cost_url: str, month_url: str, effort: Effort) -> list[Row]:
    cost = await _cost(name, cost_url, effort)
    return [*cost, *await measure_month(name, month_url, quick=effort.quick)]


async def _cost(name: str, url: str, effort: Effort) -> list[Row]:
    app = App(Settings(database_url=url, rate_limits="off"))
    # Without jobs: indexing would be measured too.
    await app.open(background=False)
    try:
        await _prepare(app)
        measured = {
            "assembly": await _pairs(app, partial(_assemble, app), effort.prompts, effort.rounds),
            "board_write": await _pairs(app, partial(_write, app), effort.writes, effort.rounds),
        }
    finally:
        await app.close()
    rows = []
    for what, pairs in measured.items():
        without, at_most = _WITHOUT[what]
        times = compared([(ours.milliseconds, theirs.milliseconds) for ours, theirs in pairs])
        rows.append(times.row(f"{name}.{what}", "ms", without, at_most=at_most))
        cpu = compared([(ours.cpu_milliseconds, theirs.cpu_milliseconds) for ours, theirs in pairs])
        rows.append(cpu.row(f"{name}.{what}_cpu", "ms of CPU", without, at_most=at_most))
    return rows


async def _prepare(app: App) -> None:
    await app.tenants.create(TENANT)
    events = [
        {"event_id": f"e{place}", "role": ("user", "assistant")[place % 2], "content": f"Finding {place}: ok."}
        for place in range(_EVENTS)
    ]
    for agent in _AGENTS:
        await call(app, "agent.create", agent_id=agent)
        await call(app, "session.create", purpose="a benchmark", session_id=agent, members=[agent])
        await _call(app, agent, "context.ingest", session_id=agent, events=events)


async def _pairs(
    app: App, step: Callable[[str, int], Awaitable[None]], times: int, rounds: int
) -> list[tuple[Cost, Cost]]:
    """Return the cost of a call, metered and not, of each round; the order alternates."""
    for agent in _AGENTS:
        await _timed(app, step, agent, times, ())
    backends, pairs = await backends_of(app), []
    for number in range(rounds):
        order = _AGENTS if number % 2 else _AGENTS[::-1]
        took = {agent: await _timed(app, step, agent, times, backends) for agent in order}
        pairs.append((took[_METERED], took[_UNMETERED]))
    return pairs


async def _timed(
    app: App, step: Callable[[str, int], Awaitable[None]], agent: str, times: int, backends: Sequence[int]
) -> Cost:
    with _without_metering(app, agent):
        started, cpu = time.perf_counter(), cpu_of(backends)
        for number in range(times):
            await step(agent, number)
        taken, used = time.perf_counter() - started, cpu_of(backends) - cpu
    return Cost(taken * 1_000 / times, used * 1_000 / times)


async def _assemble(app: App, agent: str, _: int) -> None:
    await _call(app, agent, "context.assemble", session_id=agent, task_description="What is open?", fresh=True)


async def _write(app: App, agent: str, number: int) -> None:
    value = f"The finding of step {number}."
    await _call(app, agent, "board.write", session_id=agent, key=f"key_{number % _KEYS}", value=value)


async def _call(app: App, agent: str, operation: str, **raw: object) -> None:
    await app.call(app.registry[operation], raw, CallContext(Local(TENANT, agent)))


@contextmanager
def _without_metering(app: App, agent: str) -> Iterator[None]:
    async def no_entries(_: UsageStore, *__: object) -> None:
        pass

    def no_counting(*_: object) -> None:
        pass

    if agent != _UNMETERED:
        yield
        return
    with (
        patch.object(UsageStore, "add", no_entries),
        patch("weftline.prompts.assembly.service.call_entry", lambda _: None),
        patch.object(app.metrics, "record", no_counting),
    ):
        yield
