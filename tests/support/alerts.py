"""Calls of agents with figures of their efficiency, and the evaluation of alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weftline.insight.alerts.service import Alerts
from weftline.jobs.figures import EVALUATE_ALERTS
from weftline.kernel.clock import to_micros
from weftline.kernel.fields import new_ordered_id
from weftline.kernel.identity import system_actor
from weftline.models.metering import NewUsageEntry, UsageKey, UsageSums
from weftline.models.sql import UsageStore
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.efficiency import efficiency_of
from weftline.storage.sql.database import Scope
from weftline.testing.receipts import receipt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from support.world import Caller, World
    from weftline.kernel.transaction import Transaction

CAPACITY = 100_000


async def add_calls(
    world: World, *agents: str, count: int = 1, fill: float = 0.5, useful: float = 0.5, tenant: str | None = None
) -> None:
    """Add calls of agents that fill a part of their window, of which a part was useful."""
    sent = round(fill * CAPACITY)
    figures = efficiency_of("retrieval_scores", sent=sent, useful=round(useful * sent), overhead=0, capacity=CAPACITY)

    async def add(transaction: Transaction) -> None:
        receipts, entries = ReceiptStore(transaction), []
        for agent_id in agents:
            for _ in range(count):
                world.clock.advance(seconds=0.001)
                at = to_micros(world.clock.now())
                made = receipt(f"r_{new_ordered_id()}", at, agent_id=agent_id)
                limits = replace(made.limits, window_tokens=CAPACITY)
                savings = replace(made.savings, engine_assembled_tokens=sent)
                await receipts.add(replace(made, limits=limits, savings=savings, estimate=figures), {})
                key = UsageKey("assembly", agent_id, made.session_id)
                entries.append(NewUsageEntry("call", made.receipt_id, at, key, UsageSums(calls=1)))
        await UsageStore(transaction).add(*entries)

    await world.app.database.write(Scope(tenant or world.tenant), add)


async def evaluate(world: World) -> None:
    """Evaluate all calls that were not looked at."""
    world.app.lease_runner.rest = 0
    await world.app.scheduler.drain(EVALUATE_ALERTS)


async def called(world: World, *agents: str, **figures: Any) -> None:
    await add_calls(world, *agents, **figures)
    await evaluate(world)


async def listed(caller: Caller, **filters: Any) -> list[tuple[str, str, str]]:
    """Return condition, subject and state of the alerts that a caller sees."""
    alerts = (await caller.call("alerts.list", **filters))["alerts"]
    return [(alert["condition"], alert["subject"], alert["state"]) for alert in alerts]


async def alert_events(caller: Caller) -> list[tuple[str, str, str]]:
    """Return type, condition and subject of the events about alerts that a caller sees."""
    events = (await caller.events(types=["alert.*"]))["events"]
    return [(event["type"], event["data"]["condition"], event["data"]["subject"]) for event in events]


async def by_system(world: World, work: Callable[[Alerts], Awaitable[Any]], tenant: str | None = None) -> Any:
    """Do something with the alerts of the tenant, as another slice does."""
    build, inside = world.app._container.build, tenant or world.tenant
    return await world.app.database.write(Scope(inside), lambda tx: work(build(Alerts, system_actor(inside), tx)))


def states(alerts: Sequence[tuple[str, str, str]]) -> list[str]:
    return [state for _, _, state in alerts]
