"""Added cost of budgets per assembled prompt.

Three agents assemble prompts from windows of the same length, in turn, so that other load affects all equally: one
without the check of budgets, one that no budget binds, and one that four bind, of which none is spent. Compared are
latencies, on both databases. Calls at the same time that charge one budget are compared with calls that charge none.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from benchmarks.harness import Row, compared, in_subprocess
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import TENANT, call, folder
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.models.budget_limits import Budgets
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.models.budgets import BudgetUse

_UNCHECKED, _UNBOUND, _BOUND = "unchecked", "unbound", "bound"
_AGENTS = (_UNCHECKED, _UNBOUND, _BOUND)
_BUDGETS = (("agent:bound", "day"), ("agent:bound", "month"), ("team:crew", "day"), ("team:crew", "month"))
_EVENTS = 40
_AT_ONCE = 16
_AT_MOST = 1.05


class Rounds(NamedTuple):
    """Rounds, and prompts of an agent in a round."""

    rounds: int
    prompts: int


def run(*, quick: bool) -> list[Row]:
    rounds = Rounds(2, 2) if quick else Rounds(41, 10)
    return [row for measure in (_on_sqlite, _on_postgres) for row in in_subprocess(measure, rounds)]


def _on_sqlite(rounds: Rounds) -> list[Row]:
    with folder() as data:
        return asyncio.run(_measured("budget_cost.sqlite", str(data / "weftline.db"), rounds))


def _on_postgres(rounds: Rounds) -> list[Row]:
    async def measured(server: str) -> list[Row]:
        return await _measured("budget_cost.postgres", await postgres_database(server, "budgets"), rounds)

    with postgres_server() as server:
        return asyncio.run(measured(server))


async def _measured(name: str, url: str, rounds: Rounds) -> list[Row]:
    app = App(Settings(database_url=url, rate_limits="off"))
    # Without jobs: indexing would be measured too.
    await app.open(background=False)
    try:
        await _prepare(app)
        for agent in _AGENTS:
            await _alone(app, agent, rounds.prompts)
        alone = [{agent: await _alone(app, agent, rounds.prompts) for agent in _AGENTS} for _ in range(rounds.rounds)]
        at_once = [{agent: await _at_once(app, agent) for agent in _AGENTS} for _ in range(rounds.rounds)]
    finally:
        await app.close()
    rows = []
    for agent in (_UNBOUND, _BOUND):
        result = compared([(times[agent], times[_UNCHECKED]) for times in alone])
        rows.append(result.row(f"{name}.{agent}", "ms", "no check of budgets", at_most=_AT_MOST))
    result = compared([(times[_BOUND], times[_UNCHECKED]) for times in at_once])
    rows.append(result.row(f"{name}.bound_at_once", "ms", f"no check of budgets, {_AT_ONCE} callers"))
    return rows


async def _prepare(app: App) -> None:
    await app.tenants.create(TENANT)
    await call(app, "team.create", team="crew")
    for agent in _AGENTS:
        await call(app, "agent.create", agent_id=agent)
        for number in range(_AT_ONCE):
            await call(app, "session.create", purpose="a benchmark", session_id=f"{agent}-{number}", members=[agent])
            events = [
                {"event_id": f"e{place}", "role": ("user", "assistant")[place % 2], "content": f"Finding {place}: ok."}
                for place in range(_EVENTS)
            ]
            await _call(app, agent, "context.ingest", session_id=f"{agent}-{number}", events=events)
    await call(app, "team.add_member", team="crew", agent_id=_BOUND)
    for subject, period in _BUDGETS:
        await call(app, "budget.set", subject=subject, period=period, tokens=10**12, cost=10.0**8, at_limit="refuse")


async def _call(app: App, agent: str, operation: str, **raw: object) -> None:
    await app.call(app.registry[operation], raw, CallContext(Local(TENANT, agent)))


async def _assemble(app: App, agent: str, number: int) -> None:
    await _call(
        app, agent, "context.assemble", session_id=f"{agent}-{number}", task_description="What is open?", fresh=True
    )


async def _alone(app: App, agent: str, prompts: int) -> float:
    """Return the milliseconds of a prompt, one after the other."""
    with _without_check(agent):
        started = time.perf_counter()
        for _ in range(prompts):
            await _assemble(app, agent, 0)
        return (time.perf_counter() - started) * 1_000 / prompts


async def _at_once(app: App, agent: str) -> float:
    """Return the milliseconds of a prompt, with several callers at the same time."""
    with _without_check(agent):
        started = time.perf_counter()
        await asyncio.gather(*(_assemble(app, agent, number) for number in range(_AT_ONCE)))
        return (time.perf_counter() - started) * 1_000 / _AT_ONCE


@contextmanager
def _without_check(agent: str) -> Iterator[None]:
    async def none(_: Budgets, __: str) -> Sequence[BudgetUse]:
        return ()

    if agent != _UNCHECKED:
        yield
        return
    with patch.object(Budgets, "binding", none):
        yield
