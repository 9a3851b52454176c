"""Alerts with many agents: what an evaluation costs, and how many events a storm of inefficient calls makes.

All agents of a tenant fill their windows with what they do not use. Measured is the evaluation of their calls: when all
alerts are new, when nothing has changed since, with ten times as many calls of each agent, and when all is well again.
A call itself pays nothing: alerts are found from what it leaves behind anyway. Elapsed time is what operators wait and
includes the database; it also includes what other programs take of the machine. CPU time of Weftline's process, with
the same targets, includes neither.
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from benchmarks.harness import Row
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import TENANT, call, folder
from benchmarks.wire import run_async
from weftline.app.app import App
from weftline.insight.alerts.model import DIGEST_FROM
from weftline.jobs.figures import EVALUATE_EVERY_SECONDS
from weftline.jobs.scheduler import Work
from weftline.kernel.clock import to_micros
from weftline.models.metering import NewUsageEntry, UsageKey, UsageSums
from weftline.models.sql import UsageStore
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.efficiency import efficiency_of
from weftline.settings import Settings
from weftline.storage.sql.database import Scope
from weftline.testing.clock import FrozenClock
from weftline.testing.receipts import receipt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Transaction

_CAPACITY = 100_000
_CALLS = 20
_CONDITIONS = 2
_BATCH = 50
# Of a receipt that names 300 items.
_VERSIONS = {f"board:s{number % 7}/key_{number}": f"{number:032x}" for number in range(300)}
# A fifth of the interval for a storm, a tenth if nothing has changed.
_MAX_CHANGED, _MAX_UNCHANGED = EVALUATE_EVERY_SECONDS / 5, EVALUATE_EVERY_SECONDS / 10
_GROWTH = 1.5
_numbers = count()


class Spent(NamedTuple):
    """Seconds of an evaluation: elapsed, and of CPU in this process."""

    elapsed: float
    cpu: float


def run(*, quick: bool) -> list[Row]:
    agents = 60 if quick else 1_000
    return [*run_async(_on_sqlite(agents)), *run_async(_on_postgres(agents))]


async def _on_sqlite(agents: int) -> list[Row]:
    with folder() as data:
        return await _measure("sqlite", str(data / "weftline.db"), agents)


async def _on_postgres(agents: int) -> list[Row]:
    with postgres_server() as server:
        return await _measure("postgres", await postgres_database(server, "alerts"), agents)


async def _measure(database: str, url: str, agents: int) -> list[Row]:
    clock = FrozenClock()
    app = App(Settings(database_url=url, rate_limits="off"), clock=clock)
    # Without jobs: adding up usage would be measured too.
    await app.open(background=False)
    app.lease_runner.rest = 0
    try:
        await app.tenants.create(TENANT)
        names = [f"agent-{number}" for number in range(agents)]
        for name in names:
            await call(app, "agent.create", agent_id=name)
        await _add_calls(app, clock, names, _CALLS, fill=0.9, useful=0.005)
        storm = await _evaluate(app)
        events = await _events(app)
        await _add_calls(app, clock, names, 1, fill=0.9, useful=0.005)
        same = await _evaluate(app)
        await _add_calls(app, clock, names, 10, fill=0.9, useful=0.005)
        tenfold = await _evaluate(app)
        further = await _events(app) - events
        await _add_calls(app, clock, names, _CALLS, fill=0.3, useful=0.6)
        over = await _evaluate(app)
        closing = await _events(app) - events - further
    finally:
        await app.close()
    most = _CONDITIONS * (DIGEST_FROM + 1)
    return [
        *_times(f"alerts.{database}.new_alerts", storm, _MAX_CHANGED),
        *_times(f"alerts.{database}.unchanged", same, _MAX_UNCHANGED),
        _row(f"alerts.{database}.tenfold_calls", tenfold.cpu / same.cpu, "x of one call each, CPU", _GROWTH),
        *_times(f"alerts.{database}.resolved", over, _MAX_CHANGED),
        _row(f"alerts.{database}.events_of_the_storm", events, f"events, {agents} agents", most),
        _row(f"alerts.{database}.events_while_it_lasts", further, "events", 0),
        _row(f"alerts.{database}.events_when_it_ends", closing, "events", 2 * most),
    ]


def _row(name: str, value: float, unit: str, at_most: float) -> Row:
    return Row(name, round(value, 3), unit, target=f"at most {at_most:g}", met=value <= at_most)


def _times(name: str, spent: Spent, at_most: float) -> list[Row]:
    return [
        _row(f"{name}.elapsed", spent.elapsed, "s", at_most),
        _row(f"{name}.cpu", spent.cpu, "s of CPU", at_most),
    ]


async def _evaluate(app: App) -> Spent:
    started, used = time.perf_counter(), time.process_time()
    await app.alerts.evaluate(Work(TENANT))
    return Spent(time.perf_counter() - started, time.process_time() - used)


async def _events(app: App) -> int:
    rows = await app.database.read(
        Scope(TENANT),
        lambda tx: tx.all("SELECT COUNT(*) FROM events WHERE tenant = $1 AND type LIKE 'alert.%'", TENANT),
    )
    return int(rows[0][0])


async def _add_calls(
    app: App, clock: FrozenClock, agents: Sequence[str], calls: int, *, fill: float, useful: float
) -> None:
    """Add receipts and usage entries, as calls of the agents leave them, two minutes after the last ones."""
    clock.advance(minutes=2)
    sent = round(fill * _CAPACITY)
    figures = efficiency_of("answer", sent=sent, useful=round(useful * sent), overhead=0, capacity=_CAPACITY)
    for start in range(0, len(agents), _BATCH):
        batch = [name for name in agents[start : start + _BATCH] for _ in range(calls)]

        async def add(transaction: Transaction, batch: Sequence[str] = batch) -> None:
            receipts, entries = ReceiptStore(transaction), []
            for name in batch:
                made = receipt(f"r{next(_numbers)}", to_micros(clock.now()), agent_id=name)
                limits = replace(made.limits, window_tokens=_CAPACITY)
                savings = replace(made.savings, engine_assembled_tokens=sent)
                made = replace(made, limits=limits, savings=savings, estimate=figures, versions=_VERSIONS)
                await receipts.add(made, {})
                key = UsageKey("assembly", name, made.session_id)
                entries.append(NewUsageEntry("call", made.receipt_id, made.created_at, key, UsageSums(calls=1)))
            await UsageStore(transaction).add(*entries)

        await app.database.write(Scope(TENANT), add)
